"""A serving router and the files of its engine: fetched behind the open port, checked before they are loaded."""

import json
import os
import signal
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, until
from tests.engine.support import alive

from needle_router.engine.pins import LOCK_NAME

pytestmark = pytest.mark.native
LIGHTS = {
    "name": "set_lights",
    "description": "Turn a room's lights on or off",
    "parameters": {
        "type": "object",
        "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
        "required": ["room", "on"],
    },
}
TURN = {
    "model": "gpt-x",
    "messages": [{"role": "user", "content": "turn on the kitchen lights"}],
    "tools": [{"type": "function", "function": LIGHTS}],
}
CALL = {"name": "set_lights", "arguments": {"room": "kitchen", "on": True}}
ENVELOPE = {"type": "call", "success": True, "function_calls": [CALL], "confidence": 0.97}
FROM_UPSTREAM = b'{"id":"from-upstream"}'


class Upstream(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(FROM_UPSTREAM)))
        self.end_headers()
        self.wfile.write(FROM_UPSTREAM)

    def log_message(self, *args):
        pass


@pytest.fixture
def upstream():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def serve(home, upstream):
    """A function: environment -> a running router in `home`, in front of the upstream."""
    script = home.folder / "engine.tsv"
    script.write_text(f"kitchen\t{json.dumps(ENVELOPE)}\n")
    cli = Cli(home.folder)
    cli.environment = home.environment | {"NEEDLE_FAKE_SCRIPT": str(script)}

    def serving(*flags, **variables):
        return cli.serving("--port", "0", "--upstream", upstream, "--ledger", "off", *flags, **variables)

    return serving


def ask(running):
    """(route, reason, body) of the tool turn."""
    body = json.dumps(TURN).encode()
    request = urllib.request.Request(running.url + "/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.headers["x-needle-route"], answer.headers["x-needle-reason"], answer.read()


def engine_of(running):
    return json.loads(running.get("/readyz")[1])["engine"]


def wait_for(running, condition):
    return until(lambda: condition(engine_of(running)), lambda: f"{engine_of(running)}\n{running.log.read_text()}")


def is_answered_locally(running):
    route, _, body = ask(running)
    assert route == "local", running.log.read_text()
    call = json.loads(body)["choices"][0]["message"]["tool_calls"][0]["function"]
    return (call["name"], json.loads(call["arguments"])) == (CALL["name"], CALL["arguments"])


def test_a_pulled_engine_answers_a_tool_turn(home, serve, hub):
    assert home("pull")[0] == 0
    hub.asked.clear()
    with serve() as running:
        wait_for(running, lambda engine: engine["state"] == "ready")
        assert is_answered_locally(running)
        running.process.terminate()
        assert running.until_ended() == 0
    assert hub.asked == []


@pytest.mark.parametrize("model", ["needle-2", "needle-3"])
def test_a_missing_engine_is_fetched_behind_the_open_port(home, serve, hub, model):
    hub.stall_at = 100
    with serve("--model", model) as running:
        wait_for(running, lambda engine: engine.get("detail") == f"{model} is being fetched from the model hub")
        assert engine_of(running)["state"] == "loading"
        assert ask(running)[0::2] == ("upstream", FROM_UPSTREAM)
        hub.go_on.set()
        wait_for(running, lambda engine: engine["state"] == "ready")
        assert is_answered_locally(running)
        assert (home.root / LOCK_NAME).is_file()
        running.process.terminate()
        assert running.until_ended() == 0


def test_the_rust_backend_fetches_the_weights_alone_and_loads_no_other_bytes(home, serve, hub):
    with serve("--backend", "rust", "--model", "needle-2") as running:
        wait_for(running, lambda engine: engine["state"] == "ready")
        # The engine is asked; whether its score is high enough is another matter.
        assert ask(running)[1] in ("confident", "below-threshold", "ungrounded", "no-call")
        running.process.terminate()
        assert running.until_ended() == 0
    assert [path.rpartition("/")[2] for path in hub.downloads()] == ["needle2.cact"]
    (weights,) = home.root.rglob("needle2.cact")
    weights.write_bytes(weights.read_bytes() + b"\0")
    with serve("--backend", "rust", "--model", "needle-2") as running:
        wait_for(running, lambda engine: engine["state"] == "failed")
        assert engine_of(running)["detail"].startswith(f"{weights} is not the file that was fetched: sha256 ")
        assert ask(running)[0::2] == ("upstream", FROM_UPSTREAM)
        running.process.terminate()
        assert running.until_ended() == 0


def test_a_hub_that_cannot_be_reached_is_one_line_and_requests_pass(serve):
    with serve(HF_ENDPOINT="http://127.0.0.1:9") as running:
        assert ask(running)[0::2] == ("upstream", FROM_UPSTREAM)
        wait_for(running, lambda engine: "cannot be had from http://127.0.0.1:9" in engine.get("detail", ""))
        assert engine_of(running)["state"] == "failed"
        assert ask(running)[0::2] == ("upstream", FROM_UPSTREAM)
        lines = [line for line in running.log.read_text().splitlines() if "127.0.0.1:9" in line]
        assert len(lines) == 1
        assert "needle-2 was not fetched, next try in 30 s: " in lines[0]
        running.process.terminate()
        assert running.until_ended() == 0


@pytest.mark.parametrize(
    "flags, variables",
    [
        pytest.param((), {"HF_HUB_OFFLINE": "1"}, id="offline"),
        pytest.param(("--set", "engine.auto_pull=false"), {}, id="switched off"),
        pytest.param(("--mode", "off"), {}, id="mode off"),
    ],
)
def test_nothing_is_fetched_where_that_is_not_wanted(home, serve, hub, flags, variables):
    with serve(*flags, **variables) as running:
        wait_for(running, lambda engine: engine["state"] in ("failed", "off"))
        assert ask(running)[0] == "upstream"
        running.process.terminate()
        assert running.until_ended() == 0
    assert (hub.asked, home.root.exists()) == ([], False)


def test_a_library_with_other_bytes_than_recorded_is_not_loaded(home, serve, hub, names):
    home("pull")
    (item,) = names[2]
    with home.installed(item).open("ab") as library:
        library.write(b"\0")
    hub.asked.clear()
    with serve() as running:
        wait_for(running, lambda engine: engine["state"] == "failed")
        detail = engine_of(running)["detail"]
        assert detail.startswith(f"{home.installed(item)} is not the file that was fetched: sha256 ")
        assert ask(running)[0::2] == ("upstream", FROM_UPSTREAM)
        # A changed file is a matter for a person: it is neither loaded nor quietly replaced.
        assert hub.asked == []
        running.process.terminate()
        assert running.until_ended() == 0
    code, _, err = home("pull")
    assert code == 0, err
    with serve() as running:
        wait_for(running, lambda engine: engine["state"] == "ready")
        assert is_answered_locally(running)


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_the_fetching_process_ends_with_the_router(serve, hub, end):
    hub.stall_at = 100
    with serve() as running:
        assert hub.stalled.wait(30)
        children = children_of(running.process.pid)
        assert children
        running.process.send_signal(end)
        running.until_ended()
        until(lambda: not any(alive(child) for child in children), lambda: f"{children} are still there")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_the_fetching_process_knows_the_token_of_the_hub_and_no_other_key(serve, hub):
    hub.stall_at, hub.token = 100, "hf-canary"
    keys = {"OPENAI_API_KEY": "sk-canary", "NEEDLE_ROUTER_UPSTREAM_API_KEY": "sk-canary"}
    with serve(HF_TOKEN="hf-canary", **keys) as running:
        assert hub.stalled.wait(30)
        environs = [Path(f"/proc/{child}/environ").read_bytes() for child in children_of(running.process.pid)]
        assert any(b"HF_TOKEN=hf-canary" in environ for environ in environs)
        assert not any(b"sk-canary" in environ for environ in environs)
        assert "canary" not in running.log.read_text()
