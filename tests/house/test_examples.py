"""The examples do what they say, as processes over loopback."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE_S = 60


@pytest.fixture
def environ(tmp_path):
    """An environment of nobody's habits: no configuration, a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NEEDLE_ROUTER_", "OPENAI_"))}
    path = os.pathsep.join(str(ROOT / root) for root in ("router", "policies"))
    return {**kept, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": path, "NO_PROXY": "*"}


@pytest.fixture
def app_url(environ, tmp_path):
    """The FastAPI example behind uvicorn, its engine loaded."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES), "--fd", str(sock.fileno())]
        server = subprocess.Popen(
            [*command, "fastapi_middleware:app"],
            cwd=tmp_path,
            env=environ,
            pass_fds=[sock.fileno()],
            stderr=subprocess.PIPE,
        )
    try:
        await_engine(url, server)
        yield url
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_S)


def await_engine(url, server):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            state = httpx.get(f"{url}/readyz", trust_env=False, timeout=5).json()["engine"]["state"]
        except httpx.TransportError:
            state = "unreachable"
        if state == "ready":
            return
        time.sleep(0.05)
    server.kill()
    pytest.fail(f"the engine did not load: {server.communicate()[1].decode()}")


def run(name, *arguments, cwd, env):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_needle_alone_answers_in_one_process(environ, tmp_path):
    answer = json.loads(run("needle_alone.py", cwd=tmp_path, env=environ))
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "set_timer", "arguments": '{"minutes":12}'}
    assert answer["x_needle"]["reason"] == "no-upstream"


def test_the_client_example_meets_both_routes_of_the_app_example(app_url, environ, tmp_path):
    env = {**environ, "OPENAI_BASE_URL": f"{app_url}/v1", "OPENAI_API_KEY": "test"}
    said = run("openai_client.py", cwd=tmp_path, env=env)
    assert "'turn on the kitchen lights': local (confident)" in said
    assert """('set_lights', '{"room":"kitchen","on":true}')""" in said
    assert "'what is the capital of France?': upstream (no-call)" in said
    assert 'words "This answer is the app\'s own."' in said
    assert "tool_calls" in said.partition("streamed:")[2]
