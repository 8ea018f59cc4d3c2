"""What the engine tests share: running pools, scripts, and waiting for a condition instead of for a time."""

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path

from needle_router.config.schema import Engine
from needle_router.engine.base import EngineState
from needle_router.engine.pool import EnginePool
from needle_router.task import Task


def tool(name, **properties):
    return {
        "name": name,
        "description": f"Calls {name}",
        "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}},
    }


LIGHTS = {
    "name": "set_lights",
    "description": "Turn a room's lights on or off",
    "parameters": {
        "type": "object",
        "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
        "required": ["room", "on"],
    },
}
FACTS = "date: 2026-11-30 Mon"


def task(*steps, tools=(LIGHTS,), system=FACTS, replay=False, max_new_tokens=256):
    return Task(system, json.dumps(list(tools), separators=(",", ":")), steps, max_new_tokens, replay)


def write_script(tmp_path, *envelopes, name="script.json", **rest):
    path = tmp_path / name
    path.write_text(json.dumps({"envelopes": list(envelopes), **rest}))
    return str(path)


def call(name, confidence=0.9, **arguments):
    return {
        "type": "call",
        "success": True,
        "function_calls": [{"name": name, "arguments": arguments}],
        "confidence": confidence,
    }


async def until(condition, *, deadline_s=20.0, what="the condition"):
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true within {deadline_s} s"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def pool(settings, *, wait_for=EngineState.READY, **options):
    """A started pool, closed at the end; waits for a state unless `wait_for` is None."""
    engine = EnginePool(settings, **options)
    await engine.start()
    try:
        if wait_for is not None:
            await until(lambda: engine.health().state is wait_for, what=f"state {wait_for}")
        yield engine
    finally:
        await engine.aclose()


def scripted(script, **settings):
    return Engine(backend="scripted", script=script, **settings)


def read_log(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def alive(pid):
    """Whether a process exists and is more than a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not os.path.isdir("/proc/self")


def environ_of(pid):
    """The environment that a process was started with, as a set of b"NAME=value"; None where there is no /proc."""
    path = Path(f"/proc/{pid}/environ")
    return set(path.read_bytes().split(b"\0")) if path.exists() else None


def descriptors_of(pid):
    """What a process holds open, as the kernel names it."""
    return {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
