"""What an engine can do to its router: die, hang, babble, grow. Each is an outcome, and the pool goes on."""

import asyncio
import json
import os
import signal
import time

import pytest
from tests.engine.support import alive, call, pool, scripted, task, until, write_script

from needle_router.engine.base import EngineState
from needle_router.task import EngineFailure, EngineReply

pytestmark = pytest.mark.anyio
ANSWER = call("set_lights", room="kitchen", on=True)


async def test_kill_while_idle_is_noticed_and_mended(tmp_path):
    async with pool(scripted(write_script(tmp_path, ANSWER))) as engine:
        (pid,) = engine.health().pids
        os.kill(pid, signal.SIGKILL)
        started = time.monotonic()
        await until(lambda: engine.health().restarts == 1 and engine.health().state is EngineState.READY)
        assert time.monotonic() - started < 5
        assert not alive(pid)
        assert isinstance(await engine.complete(task("a"), deadline_s=20), EngineReply)


async def test_kill_under_load_costs_the_running_request_only(tmp_path):
    script = write_script(tmp_path, ANSWER, delay_ms=20)
    async with pool(scripted(script, queue_limit=50)) as engine, asyncio.TaskGroup() as group:
        jobs = [group.create_task(engine.complete(task(f"{n}"), deadline_s=30)) for n in range(20)]
        await until(lambda: engine.health().queue_depth in range(5, 16))
        os.kill(engine.health().pids[0], signal.SIGKILL)
    reasons = [getattr(job.result(), "reason", "answered") for job in jobs]
    assert reasons.count("engine-crash") <= 1
    assert reasons.count("answered") >= 19


async def test_a_crash_is_told_at_once_not_at_the_deadline(tmp_path):
    async with pool(scripted(write_script(tmp_path, ANSWER, crash=True))) as engine:
        async with asyncio.timeout(10):
            outcome = await engine.complete(task("a"), deadline_s=60)
        assert isinstance(outcome, EngineFailure)
        assert outcome.reason == "engine-crash"
        await until(lambda: engine.health().state is EngineState.READY)
        assert engine.health().restarts == 1


async def test_a_hanging_engine_is_ended_at_the_deadline_and_replaced(tmp_path):
    async with pool(scripted(write_script(tmp_path, ANSWER, hang=True))) as engine:
        (pid,) = engine.health().pids
        started = time.monotonic()
        outcome = await engine.complete(task("a"), deadline_s=0.3)
        assert outcome.reason == "engine-timeout"
        assert outcome.compute_s == pytest.approx(0.3, abs=0.2)
        assert time.monotonic() - started < 2
        await until(lambda: engine.health().restarts == 1 and engine.health().state is EngineState.READY)
        assert not alive(pid)


async def test_those_who_wait_behind_a_hanging_request_are_served_by_the_next_process(tmp_path):
    script = write_script(tmp_path, ANSWER, delay_ms=900)
    async with pool(scripted(script)) as engine, asyncio.TaskGroup() as group:
        late = group.create_task(engine.complete(task("too slow"), deadline_s=0.4))
        await until(lambda: engine._slots[0].running is not None)
        waiting = group.create_task(engine.complete(task("patient"), deadline_s=30))
    assert late.result().reason == "engine-timeout"
    assert isinstance(waiting.result(), EngineReply)


async def test_a_crash_at_every_start_backs_off_and_ends_as_failed(tmp_path):
    script = write_script(tmp_path, ANSWER, crash_on_load=True)
    async with pool(scripted(script), wait_for=EngineState.FAILED) as engine:
        # Five deaths and no storm: the sixth start is half a minute away.
        assert engine.health().restarts == 4
        assert engine.health().pids == ()
        outcome = await engine.complete(task("a"), deadline_s=5)
        assert outcome == EngineFailure("engine-off", "the engine process died")


async def test_between_two_starts_requests_are_refused_as_crash(tmp_path):
    script = write_script(tmp_path, ANSWER, crash_on_load=True)
    async with pool(scripted(script), wait_for=None) as engine:
        await until(lambda: engine.health().restarts >= 2)
        reasons = set()
        while engine.health().state is not EngineState.FAILED:
            reasons.add((await engine.complete(task("a"), deadline_s=5)).reason)
            await asyncio.sleep(0.02)
    assert reasons <= {"engine-crash", "engine-loading"}
    assert "engine-crash" in reasons


async def test_a_process_that_grows_is_replaced_between_requests(tmp_path):
    script = write_script(tmp_path, ANSWER, leak_mb=25)
    async with pool(scripted(script), max_rss_mb=90) as engine:
        outcomes = [await engine.complete(task(f"{n}"), deadline_s=30) for n in range(8)]
        assert [type(outcome) for outcome in outcomes] == [EngineReply] * 8
        assert 1 <= engine.health().restarts <= 4


@pytest.mark.parametrize(
    "output",
    [
        pytest.param("", id="nothing"),
        pytest.param("I am a teapot", id="no JSON"),
        pytest.param('{"type":"call","function_calls":[{"na', id="cut JSON"),
        pytest.param("\x01\x02\u2028\ufffd", id="binary"),
        pytest.param("[]", id="a list"),
        pytest.param(" " * 1_000_000, id="a megabyte of spaces"),
        pytest.param('{"confidence":NaN}', id="NaN"),
        pytest.param('{"a":' * 2000 + "1" + "}" * 2000, id="a nest"),
    ],
)
async def test_output_that_is_no_envelope_is_garbage(tmp_path, output):
    async with pool(scripted(write_script(tmp_path, output, ANSWER))) as engine:
        outcome = await engine.complete(task("a"), deadline_s=20)
        assert isinstance(outcome, EngineFailure)
        assert outcome.reason == "engine-garbage"
        assert isinstance(await engine.complete(task("b"), deadline_s=20), EngineReply)
        assert engine.health().restarts == 0


async def test_an_envelope_that_json_cannot_carry_on_is_garbage(tmp_path):
    deep = json.loads('{"a":' * 400 + "1" + "}" * 400)
    async with pool(scripted(write_script(tmp_path, {"type": "call", "reasoning": deep}))) as engine:
        outcome = await engine.complete(task("a"), deadline_s=20)
        assert outcome.reason == "engine-garbage"
        assert outcome.detail.startswith("the envelope cannot be passed on")


async def test_an_error_of_the_wrapper_and_one_of_the_model_are_told_apart(tmp_path):
    async with pool(scripted(write_script(tmp_path, **{"raise": "boom"}))) as engine:
        outcome = await engine.complete(task("a"), deadline_s=20)
        assert (outcome.reason, outcome.detail) == ("engine-error", "boom")
    failed = {"type": "call", "success": False, "error": "cut", "error_code": "truncated", "function_calls": []}
    async with pool(scripted(write_script(tmp_path, failed))) as engine:
        outcome = await engine.complete(task("a"), deadline_s=20)
        assert isinstance(outcome, EngineReply)
        assert outcome.envelope == failed


async def test_noise_on_standard_output_does_not_reach_the_frames(tmp_path):
    async with pool(scripted(write_script(tmp_path, ANSWER, noise=True))) as engine:
        outcomes = [await engine.complete(task(f"{n}"), deadline_s=20) for n in range(5)]
    assert [outcome.envelope for outcome in outcomes] == [ANSWER] * 5
