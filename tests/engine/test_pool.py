"""Queues, deadlines, choice and cache of the pool, on scripted engines."""

import asyncio

import pytest
from tests.engine.support import call, pool, read_log, scripted, task, tool, until, write_script

from needle_router.engine.base import EngineState
from needle_router.engine.off import OffEngine
from needle_router.engine.pool import EnginePool
from needle_router.task import EngineFailure, EngineReply

pytestmark = pytest.mark.anyio
ANSWER = call("set_lights", room="kitchen", on=True)


async def test_start_returns_at_once_and_loading_is_an_outcome(tmp_path):
    script = write_script(tmp_path, ANSWER, delays={"load_ms": 30_000})
    async with pool(scripted(script), wait_for=None) as engine:
        outcome = await engine.complete(task("a"), deadline_s=5)
        assert outcome == EngineFailure("engine-loading", "the engine is still loading")
        assert engine.health().state is EngineState.LOADING


async def test_an_engine_that_was_never_started_is_loading(tmp_path):
    engine = EnginePool(scripted(write_script(tmp_path, ANSWER)))
    assert engine.health().state is EngineState.LOADING
    assert (await engine.complete(task("a"), deadline_s=5)).reason == "engine-loading"
    await engine.aclose()


async def test_a_second_start_changes_nothing(tmp_path):
    async with pool(scripted(write_script(tmp_path, ANSWER))) as engine:
        before = engine.health()
        await engine.start()
        assert engine.health() == before


async def test_a_script_that_is_missing_is_a_failed_engine_that_says_so(tmp_path):
    missing = str(tmp_path / "missing.json")
    async with pool(scripted(missing), wait_for=EngineState.FAILED) as engine:
        assert engine.health().detail == f"engine.script {missing} cannot be read: No such file or directory"
        outcome = await engine.complete(task("a"), deadline_s=5)
        assert outcome == EngineFailure("engine-off", engine.health().detail)


async def test_what_was_missing_is_tried_again_at_once_when_told(tmp_path):
    path = tmp_path / "script.json"
    async with pool(scripted(str(path)), wait_for=EngineState.FAILED) as engine:
        write_script(tmp_path, ANSWER)
        engine.retry()
        await until(lambda: engine.health().state is EngineState.READY)
        assert isinstance(await engine.complete(task("a"), deadline_s=5), EngineReply)


async def test_past_the_queue_limit_the_answer_is_busy_at_once(tmp_path):
    script = write_script(tmp_path, ANSWER, delay_ms=400)
    async with pool(scripted(script, queue_limit=2)) as engine, asyncio.TaskGroup() as group:
        accepted = [group.create_task(engine.complete(task("a"), deadline_s=20)) for _ in range(1)]
        await until(lambda: engine.health().queue_depth == 0 and engine._slots[0].running is not None)
        accepted += [group.create_task(engine.complete(task("a"), deadline_s=20)) for _ in range(2)]
        await until(lambda: engine.health().queue_depth == 2)
        async with asyncio.timeout(0.3):
            outcome = await engine.complete(task("a"), deadline_s=20)
        assert outcome == EngineFailure("engine-busy", "2 requests are already waiting for the engine (limit 2)")
    assert [type(job.result()) for job in accepted] == [EngineReply] * 3


async def test_a_limit_of_nothing_still_lets_an_idle_worker_work(tmp_path):
    script = write_script(tmp_path, ANSWER, delay_ms=200)
    async with pool(scripted(script, queue_limit=0)) as engine:
        outcomes = await asyncio.gather(*(engine.complete(task("a"), deadline_s=20) for _ in range(2)))
    assert [getattr(outcome, "reason", "answered") for outcome in outcomes] == ["answered", "engine-busy"]


async def test_waiting_counts_against_the_deadline_and_kills_nobody(tmp_path):
    script = write_script(tmp_path, ANSWER, delay_ms=700)
    async with pool(scripted(script)) as engine, asyncio.TaskGroup() as group:
        running = group.create_task(engine.complete(task("a"), deadline_s=20))
        await asyncio.sleep(0)
        outcome = await engine.complete(task("b"), deadline_s=0.2)
        assert outcome.reason == "engine-timeout"
        assert outcome.queue_wait_s == pytest.approx(0.2, abs=0.15)
        assert outcome.compute_s == 0
        assert engine.health().queue_depth == 0
        assert isinstance(await running, EngineReply)
        assert engine.health().restarts == 0


async def test_the_wait_in_the_queue_is_told(tmp_path):
    script = write_script(tmp_path, ANSWER, delay_ms=150)
    async with pool(scripted(script)) as engine:
        first, second = await asyncio.gather(*(engine.complete(task("a"), deadline_s=20) for _ in range(2)))
    assert first.queue_wait_s < 0.1
    assert second.queue_wait_s >= 0.14
    assert second.compute_s >= 0.14


async def test_a_caller_who_gives_up_while_waiting_leaves_the_queue(tmp_path):
    log = tmp_path / "log"
    script = write_script(tmp_path, ANSWER, delay_ms=300, log=str(log))
    async with pool(scripted(script)) as engine, asyncio.TaskGroup() as group:
        running = group.create_task(engine.complete(task("a"), deadline_s=20))
        waiting = group.create_task(engine.complete(task("never"), deadline_s=20))
        await until(lambda: engine.health().queue_depth == 1)
        waiting.cancel()
        await until(lambda: engine.health().queue_depth == 0)
        assert isinstance(await running, EngineReply)
        assert isinstance(await engine.complete(task("c"), deadline_s=20), EngineReply)
    assert [entry["text"] for entry in read_log(log) if entry["op"] == "complete"] == ["a", "c"]


async def test_a_caller_who_gives_up_while_running_costs_no_process(tmp_path):
    script = write_script(tmp_path, ANSWER, call("second"), delay_ms=200)
    async with pool(scripted(script)) as engine, asyncio.TaskGroup() as group:
        running = group.create_task(engine.complete(task("a"), deadline_s=20))
        await until(lambda: engine._slots[0].running is not None)
        running.cancel()
        reply = await engine.complete(task("b"), deadline_s=20)
        assert reply.envelope["function_calls"][0]["name"] == "second"
        assert engine.health().restarts == 0


async def test_jobs_under_way_end_as_off_when_the_pool_is_closed(tmp_path):
    script = write_script(tmp_path, ANSWER, hang=True)
    async with pool(scripted(script)) as engine, asyncio.TaskGroup() as group:
        jobs = [group.create_task(engine.complete(task("a"), deadline_s=60)) for _ in range(3)]
        await until(lambda: engine.health().queue_depth == 2)
        await engine.aclose()
    assert [job.result().reason for job in jobs] == ["engine-off"] * 3


async def test_every_answer_belongs_to_its_own_question(tmp_path):
    script = write_script(tmp_path, ANSWER, echo=True, delay_ms=2)
    async with pool(scripted(script, workers=2, queue_limit=100)) as engine:

        async def ask(number):
            name = f"tool_{number % 7}"
            reply = await engine.complete(task(f"question {number}", tools=(tool(name),)), deadline_s=20)
            return reply.envelope["reasoning"], f"{name}|question {number}"

        pairs = await asyncio.gather(*(ask(number) for number in range(50)))
    assert [got for got, _ in pairs] == [wanted for _, wanted in pairs]


async def test_tools_stay_with_the_worker_that_has_loaded_them(tmp_path):
    log = tmp_path / "log"
    script = write_script(tmp_path, ANSWER, log=str(log), delays={"init_ms": 120, "step_ms": 10})
    async with pool(scripted(script, workers=2)) as engine:
        for number in range(12):
            await engine.complete(task("x", tools=(tool(f"tool_{number % 2}"),)), deadline_s=20)
        assert engine.health().reinits == 2
    loaded = [(entry["pid"], entry["tools"][0]["name"]) for entry in read_log(log) if entry["op"] == "init"]
    assert sorted(name for _, name in loaded) == ["tool_0", "tool_1"]
    assert len({pid for pid, _ in loaded}) == 2


async def test_a_conversation_goes_on_where_it_began(tmp_path):
    log = tmp_path / "log"
    script = write_script(tmp_path, ANSWER, log=str(log))
    async with pool(scripted(script, workers=2, session="replay")) as engine:
        told = []
        for steps in (("a",), ("a", "[1]"), ("a", "[1]", "[2]"), ("other",)):
            reply = await engine.complete(task(*steps, replay=True), deadline_s=20)
            told.append((reply.replayed_turns, reply.reinitialized))
        other_tools = await engine.complete(task("a", "[1]", tools=(tool("b"),), replay=True), deadline_s=20)
    assert told[:3] == [(1, True), (1, False), (1, False)]
    assert told[3][0] == 1
    assert (other_tools.replayed_turns, other_tools.reinitialized) == (2, True)


async def test_equal_questions_are_answered_from_the_cache_when_it_is_on(tmp_path):
    log = tmp_path / "log"
    script = write_script(tmp_path, ANSWER, call("second"), log=str(log))
    async with pool(scripted(script, cache_entries=4)) as engine:
        first = await engine.complete(task("a"), deadline_s=20)
        second = await engine.complete(task("a"), deadline_s=20)
    assert (first.cached, second.cached, second.compute_s) == (False, True, 0.0)
    assert second.envelope == first.envelope
    assert len([entry for entry in read_log(log) if entry["op"] == "complete"]) == 1


async def test_without_a_cache_the_engine_is_asked_each_time(tmp_path):
    async with pool(scripted(write_script(tmp_path, ANSWER, call("second")))) as engine:
        replies = [await engine.complete(task("a"), deadline_s=20) for _ in range(2)]
    assert [reply.envelope["function_calls"][0]["name"] for reply in replies] == ["set_lights", "second"]


async def test_a_prompt_too_large_for_a_frame_is_too_long(tmp_path):
    async with pool(scripted(write_script(tmp_path, ANSWER))) as engine:
        outcome = await engine.complete(task("x" * (17 << 20)), deadline_s=20)
    assert outcome.reason == "prompt-too-long"


async def test_a_pool_started_by_a_task_that_ends_goes_on(tmp_path):
    engine = EnginePool(scripted(write_script(tmp_path, ANSWER)))
    async with asyncio.TaskGroup() as group:
        group.create_task(engine.start())
    await until(lambda: engine.health().state is EngineState.READY)
    assert isinstance(await engine.complete(task("a"), deadline_s=20), EngineReply)
    await engine.aclose()


async def test_an_engine_that_is_off_says_so():
    engine = OffEngine()
    await engine.start()
    assert engine.health().state is EngineState.OFF
    assert (await engine.complete(task("a"), deadline_s=1)).reason == "engine-off"
    await engine.aclose()
