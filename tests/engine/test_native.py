"""The vendor's package on a stand-in for its library: its traps, one by one."""

import asyncio
import json
import os
import re

import pytest
from tests.engine.support import FACTS, alive, call, environ_of, pool, task, tool, until

from needle_router.config.schema import Engine
from needle_router.engine.base import EngineState
from needle_router.task import EngineFailure, EngineReply

pytestmark = [pytest.mark.anyio, pytest.mark.native]
KITCHEN = call("set_lights", room="kitchen", on=True)
SCRIPT = f"kitchen\t{json.dumps(KITCHEN)}\n"
both_generations = pytest.mark.parametrize("generation", [2, 3])


async def ask(engine, *steps, **rest):
    return await engine.complete(task(*steps, **rest), deadline_s=rest.pop("deadline_s", 20))


@both_generations
async def test_one_thread_of_one_process_is_ever_inside_the_library(native, generation):
    settings, environ = native(generation, f"@\t@sleep=5 {json.dumps(KITCHEN)}\n*\t{json.dumps(KITCHEN)}\n")
    async with pool(settings, environ=environ) as engine:
        outcomes = await asyncio.gather(*(ask(engine, f"kitchen @ {n}") for n in range(24)))
        (pid,) = engine.health().pids
        assert engine.health().restarts == 0
    assert {type(outcome) for outcome in outcomes} == {EngineReply}
    entries = native.entries()
    assert {entry[0] for entry in entries} == {str(pid)}
    assert len({entry[1] for entry in entries}) == 1
    assert len([entry for entry in entries if entry[2] == "complete"]) == 24


async def test_two_workers_are_two_processes_with_one_thread_each(native):
    settings, environ = native(2, f"*\t@sleep=30 {json.dumps(KITCHEN)}\n", workers=2)
    async with pool(settings, environ=environ) as engine:
        names = [f"tool_{n % 4}" for n in range(16)]
        await asyncio.gather(*(ask(engine, "kitchen", tools=(tool(name),)) for name in names))
    inside = {entry[:2] for entry in native.entries()}
    assert len(inside) == 2
    assert len({pid for pid, _ in inside}) == 2


@both_generations
async def test_a_session_is_loaded_once_and_reset_between_requests(native, generation):
    settings, environ = native(generation, SCRIPT)
    async with pool(settings, environ=environ) as engine:
        for text in ("kitchen one", "kitchen two"):
            await ask(engine, text)
    loaded = [entry[2] for entry in native.entries() if entry[2] != "load"]
    assert loaded == ["init", "init", "complete", "reset", "complete"]


async def test_replay_feeds_only_what_is_new(native):
    settings, environ = native(2, SCRIPT)
    async with pool(settings, environ=environ) as engine:
        first = await ask(engine, "kitchen", replay=True)
        second = await ask(engine, "kitchen", "[1]", replay=True)
        third = await ask(engine, "hall", replay=True)
    told = [(reply.replayed_turns, reply.reinitialized) for reply in (first, second, third)]
    assert told == [(1, True), (1, False), (1, False)]
    assert [entry[3] for entry in native.entries() if entry[2] == "complete"] == ["kitchen", "[1]", "hall"]


async def test_the_system_text_gets_no_minute_and_the_tools_keep_their_key_order(native):
    settings, environ = native(2, SCRIPT)
    async with pool(settings, environ=environ) as engine:
        await ask(engine, "kitchen")
        assert (await ask(engine, "kitchen")).reinitialized is False
    tools = [entry[3] for entry in native.entries() if entry[2] == "init"][-1]
    assert tools == task("x").tools
    assert tools.startswith('[{"name":"set_lights","description":')
    assert FACTS == "date: 2026-11-30 Mon"


@both_generations
async def test_output_that_fills_the_buffer_counts_as_cut(native, generation):
    settings, environ = native(generation, SCRIPT, buffer_bytes=len(json.dumps(KITCHEN)) + 1)
    async with pool(settings, environ=environ) as engine:
        outcome = await ask(engine, "kitchen")
        assert outcome.reason == "truncated"
        assert "engine.buffer_bytes" in outcome.detail


async def test_output_that_leaves_one_byte_of_the_buffer_is_whole(native):
    settings, environ = native(2, SCRIPT, buffer_bytes=len(json.dumps(KITCHEN)) + 2)
    async with pool(settings, environ=environ) as engine:
        assert (await ask(engine, "kitchen")).envelope == KITCHEN


@pytest.mark.parametrize(
    "answer, reason",
    [
        pytest.param(b"I am a teapot", "engine-garbage", id="no JSON"),
        pytest.param(b'{"type":"call","function_calls":[{"na', "engine-garbage", id="cut JSON"),
        pytest.param(b'{"type":"respond","reasoning":"\xd7"}', "engine-garbage", id="cut UTF-8"),
        pytest.param(b"\x01\x02\xff\xfe", "engine-garbage", id="binary"),
        pytest.param(b"[1, 2]", "engine-garbage", id="a list"),
        pytest.param(b'{"function_calls":[3]}', None, id="calls that are none"),
        pytest.param(b"@spaces=1000000 ", "engine-garbage", id="a megabyte of spaces"),
        pytest.param(b'@code=-3 {"type":"error","error":"boom detail"}', "engine-error", id="a negative result"),
        pytest.param(b"@crash ", "engine-crash", id="a segfault"),
    ],
)
@both_generations
async def test_every_way_to_go_wrong_is_an_outcome_and_the_next_request_is_served(native, generation, answer, reason):
    settings, environ = native(generation, b"bad\t" + answer + b"\n" + SCRIPT.encode())
    async with pool(settings, environ=environ) as engine:
        outcome = await ask(engine, "bad")
        assert getattr(outcome, "reason", None) == reason
        await until(lambda: engine.health().state is EngineState.READY)
        assert (await ask(engine, "kitchen")).envelope == KITCHEN


async def test_the_library_s_own_words_are_the_detail_of_an_error(native):
    settings, environ = native(2, '*\t@code=-3 {"type":"error","error":"boom detail"}\n')
    async with pool(settings, environ=environ) as engine:
        outcome = await ask(engine, "x")
    assert isinstance(outcome, EngineFailure)
    assert "boom detail" in outcome.detail


async def test_a_failure_of_the_model_is_an_envelope_not_an_error_of_the_wrapper(native):
    failed = {"type": "call", "success": False, "error": "cut", "error_code": "truncated", "function_calls": []}
    settings, environ = native(2, f"*\t{json.dumps(failed)}\n")
    async with pool(settings, environ=environ) as engine:
        assert (await ask(engine, "x")).envelope == failed


async def test_a_prefix_too_long_for_the_window_is_an_error(native):
    settings, environ = native(2, SCRIPT)
    async with pool(settings, environ=environ | {"NEEDLE_FAKE_WINDOW": "200"}) as engine:
        outcome = await ask(engine, "kitchen")
        assert (outcome.reason, outcome.detail) == ("engine-error", "needle_init failed")
        assert isinstance(await ask(engine, "kitchen", tools=(), system=""), EngineReply)


@both_generations
async def test_a_hanging_library_is_ended_at_the_deadline(native, generation):
    settings, environ = native(generation, f"stuck\t@hang \n{SCRIPT}")
    async with pool(settings, environ=environ) as engine:
        (pid,) = engine.health().pids
        outcome = await engine.complete(task("stuck"), deadline_s=0.3)
        assert outcome.reason == "engine-timeout"
        await until(lambda: not alive(pid))
        assert (await ask(engine, "kitchen")).envelope == KITCHEN


async def test_a_library_that_grows_is_recycled(native):
    settings, environ = native(2, f"*\t@leak=40 {json.dumps(KITCHEN)}\n")
    async with pool(settings, environ=environ, max_rss_mb=120) as engine:
        outcomes = [await ask(engine, f"kitchen {n}") for n in range(6)]
        assert {type(outcome) for outcome in outcomes} == {EngineReply}
        assert engine.health().restarts >= 1


@both_generations
async def test_chatter_of_the_library_on_standard_output_breaks_nothing(native, generation):
    settings, environ = native(generation, SCRIPT)
    async with pool(settings, environ=environ | {"NEEDLE_FAKE_NOISE": "1"}) as engine:
        for _ in range(3):
            assert (await ask(engine, "kitchen")).envelope == KITCHEN


async def test_nothing_is_written_home_and_nobody_is_called(native):
    settings, environ = native(2, SCRIPT)
    # Telemetry is on by default in the package; a call would go to this address and leave an id under HOME.
    environ |= {"NEEDLE_TELEMETRY_URL": "http://127.0.0.1:9/", "NEEDLE_TELEMETRY": "1"}
    async with pool(settings, environ=environ) as engine:
        await ask(engine, "kitchen")
        seen = environ_of(engine.health().pids[0])
        assert seen is None or {b"NEEDLE_TELEMETRY=0", b"DO_NOT_TRACK=1"} <= seen
    assert [path for path in native.home.rglob("*") if path.is_file()] == []


@both_generations
async def test_tuned_weights_are_run_with_the_engine_of_their_generation(native, generation, tmp_path):
    archive = native.archive(generation, tmp_path / "tuned.cact")
    settings, environ = native(generation, SCRIPT, model=str(archive))
    async with pool(settings, environ=environ) as engine:
        reply = await ask(engine, "kitchen")
        # Tuned weights without a confidence head: unknown, which is not "certain".
        assert reply.envelope == KITCHEN | {"confidence": None}
        (pid,) = engine.health().pids
    # The package runs tuned weights in a process of its own, which must go too.
    others = {int(entry[0]) for entry in native.entries()} - {pid}
    await until(lambda: not any(alive(other) for other in others), deadline_s=5)


async def test_tuned_weights_go_on_after_an_error(native, tmp_path):
    archive = native.archive(2, tmp_path / "tuned.cact")
    settings, environ = native(2, b"bad\t\xff\n" + SCRIPT.encode(), model=str(archive))
    async with pool(settings, environ=environ) as engine:
        assert (await ask(engine, "bad")).reason in ("engine-error", "engine-garbage")
        assert isinstance(await ask(engine, "kitchen"), EngineReply)


@pytest.mark.parametrize(
    "model, found",
    [
        pytest.param(
            "needle-2", "the engine library of needle-2 is not at .*: run `needle-router pull needle-2`", id="2"
        ),
        pytest.param(
            "needle-3", "the engine library of needle-3 is not at .*: run `needle-router pull needle-3`", id="3"
        ),
        pytest.param("tiny", 'engine.model "tiny" runs on the rust backend: set engine.backend = "rust"', id="tiny"),
        pytest.param("/nowhere/my.cact", "engine.model /nowhere/my.cact cannot be read: No such file", id="path"),
    ],
)
async def test_what_is_missing_fails_the_load_and_names_the_remedy(tmp_path, model, found):
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    settings = Engine(backend="native", model=model)
    async with pool(settings, environ=environ, wait_for=EngineState.FAILED) as engine:
        assert re.match(found, engine.health().detail)


async def test_generation_3_needs_its_weights_beside_the_library(native):
    settings, environ = native(3, SCRIPT)
    for weights in native.home.rglob("needle3.cact"):
        weights.unlink()
    async with pool(settings, environ=environ, wait_for=EngineState.FAILED) as engine:
        assert re.match("the weights of needle-3 are not at .*needle-router pull needle-3", engine.health().detail)


async def test_a_library_path_without_a_file_is_named(native, tmp_path):
    settings, environ = native(2, SCRIPT)
    environ["NEEDLE2_LIB_PATH"] = str(tmp_path / "gone.so")
    async with pool(settings, environ=environ, wait_for=EngineState.FAILED) as engine:
        assert engine.health().detail == f"NEEDLE2_LIB_PATH names {tmp_path}/gone.so, where there is no file"


async def test_a_file_that_is_no_library_fails_the_load(native, tmp_path):
    settings, environ = native(2, SCRIPT)
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"<html>not found</html>")
    environ["NEEDLE2_LIB_PATH"] = str(broken)
    async with pool(settings, environ=environ, wait_for=EngineState.FAILED) as engine:
        assert engine.health().detail.startswith(f"{broken} does not load: ")


@both_generations
async def test_a_tool_index_reaches_the_library(native, generation, tmp_path):
    index = tmp_path / "tools.idx"
    index.write_bytes(b"index")
    settings, environ = native(generation, SCRIPT, tool_index=str(index))
    async with pool(settings, environ=environ) as engine:
        assert isinstance(await ask(engine, "kitchen"), EngineReply)
    assert str(index) in [entry[3] for entry in native.entries() if entry[2] == "index"]
