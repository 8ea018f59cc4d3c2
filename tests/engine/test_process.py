"""The engine process itself: what it inherits, what it imports, when it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.engine.support import alive, call, descriptors_of, environ_of, pool, scripted, task, until, write_script

from needle_router.engine.child import LAUNCH, SOURCE_ROOT

pytestmark = pytest.mark.anyio
ANSWER = call("set_lights", room="kitchen", on=True)
linux = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")

PARENT = textwrap.dedent(
    """
    import asyncio, sys
    from needle_router.config.schema import Engine
    from needle_router.engine.pool import EnginePool
    from needle_router.task import Task

    async def main(script, busy):
        engine = EnginePool(Engine(backend="scripted", script=script))
        await engine.start()
        while not engine.health().state == "ready":
            await asyncio.sleep(0.01)
        asking = asyncio.gather(engine.complete(Task("", "[]", ("a",)), deadline_s=600)) if busy else None
        await asyncio.sleep(0.05)
        print(*engine.health().pids, flush=True)
        await asyncio.sleep(600)

    asyncio.run(main(sys.argv[1], sys.argv[2] == "busy"))
    """
)


def killed_router_s_worker(script, state):
    """Start a router, kill it, and return the process id of its worker, which was alive until then."""
    environ = {**os.environ, "PYTHONPATH": SOURCE_ROOT + os.pathsep + str(Path(SOURCE_ROOT).parent / "policies")}
    command = [sys.executable, "-c", PARENT, script, state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    return pid


@pytest.mark.parametrize("state", ["idle", "busy"])
async def test_no_engine_process_outlives_a_router_that_is_killed(tmp_path, state):
    script = write_script(tmp_path, ANSWER, hang=state == "busy")
    pid = killed_router_s_worker(script, state)
    await until(lambda: not alive(pid), deadline_s=5, what="the end of the engine process")


@linux
async def test_the_environment_of_a_running_worker_holds_no_key(tmp_path):
    environ = {**os.environ, "OPENAI_API_KEY": "sk-canary", "HF_TOKEN": "hf-canary", "MY_SECRET": "canary"}
    async with pool(scripted(write_script(tmp_path, ANSWER)), environ=environ) as engine:
        seen = environ_of(engine.health().pids[0])
    assert not [entry for entry in seen if b"canary" in entry]
    assert {b"NEEDLE_TELEMETRY=0", b"DO_NOT_TRACK=1", b"HF_HUB_OFFLINE=1"} <= seen


@linux
async def test_a_worker_inherits_no_open_socket(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.set_inheritable(True)
        async with pool(scripted(write_script(tmp_path, ANSWER))) as engine:
            held = descriptors_of(engine.health().pids[0])
            ours = os.readlink(f"/proc/self/fd/{server.fileno()}")
    assert ours not in held
    assert len([name for name in held if name.startswith("socket:")]) == 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
async def test_a_worker_lets_the_router_decide_when_it_ends(tmp_path, name):
    async with pool(scripted(write_script(tmp_path, ANSWER))) as engine:
        (pid,) = engine.health().pids
        os.kill(pid, getattr(signal, name))
        reply = await engine.complete(task("a"), deadline_s=20)
        assert reply.envelope == ANSWER
        assert engine.health().pids == (pid,)


async def test_a_worker_leads_a_group_of_its_own_so_that_a_terminal_does_not_reach_it(tmp_path):
    async with pool(scripted(write_script(tmp_path, ANSWER))) as engine:
        (pid,) = engine.health().pids
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == pid


def test_a_worker_imports_no_server_no_client_and_no_event_loop():
    heavy = "starlette uvicorn httpx aiohttp anyio asyncio msgspec jsonschema_rs huggingface_hub needle needle_rs"
    code = f"import sys, needle_router.engine.worker; print([m for m in {heavy.split()} if m in sys.modules])"
    environ = {**os.environ, "PYTHONPATH": SOURCE_ROOT}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert done.stdout == "[]\n"


def test_a_worker_imports_nothing_from_the_working_directory(tmp_path):
    (tmp_path / "orjson.py").write_text("raise SystemExit('imported from the working directory')")
    command = [sys.executable, "-P", "-c", LAUNCH, SOURCE_ROOT]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_worker_whose_pipe_breaks_in_the_middle_of_a_frame_just_ends(tmp_path):
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-c", LAUNCH, SOURCE_ROOT]
    with ours, subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as worker:
        theirs.close()
        ours.sendall(b"\x00\x00\x00\xff{")
        ours.shutdown(socket.SHUT_WR)
        assert worker.wait(timeout=20) == 0
        assert worker.stderr.read() == b""


async def test_one_thread_owns_the_library(tmp_path):
    log = tmp_path / "log"
    script = write_script(tmp_path, ANSWER, log=str(log))
    async with pool(scripted(script, workers=2)) as engine:
        for number in range(6):
            await engine.complete(task(f"{number}"), deadline_s=20)
    threads = {}
    for entry in map(json.loads, log.read_text().splitlines()):
        threads.setdefault(entry["pid"], set()).add(entry["thread"])
    assert {len(seen) for seen in threads.values()} == {1}
