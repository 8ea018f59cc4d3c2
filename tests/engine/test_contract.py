"""What every engine promises, whatever its backend. A new backend adds one parameter here."""

import asyncio
import json

import pytest
from tests.engine.support import alive, call, pool, scripted, task, until, write_script

from needle_router.config.schema import Engine
from needle_router.engine.base import EngineState
from needle_router.task import EngineFailure, EngineReply, Task

pytestmark = pytest.mark.anyio
KITCHEN = call("set_lights", room="kitchen", on=True)
NATIVE_SCRIPT = f"kitchen\t{json.dumps(KITCHEN)}\n"


@pytest.fixture(
    params=[
        "scripted",
        "rust",
        pytest.param("native-2", marks=pytest.mark.native),
        pytest.param("native-3", marks=pytest.mark.native),
    ]
)
def backend(request, tmp_path):
    """Settings and environment of an engine that turns on the kitchen lights when asked."""
    if request.param == "scripted":
        return scripted(write_script(tmp_path, KITCHEN)), None
    if request.param == "rust":
        return Engine(backend="rust", model="tiny"), None
    return request.getfixturevalue("native")(int(request.param[-1]), NATIVE_SCRIPT)


@pytest.fixture
async def engine(backend, anyio_backend):
    settings, environ = backend
    async with pool(settings, environ=environ) as running:
        yield running


async def ask(engine, *steps, **rest):
    return await engine.complete(task(*steps, **rest), deadline_s=20)


async def test_it_answers_with_an_envelope(engine):
    reply = await ask(engine, "turn on the kitchen lights")
    assert isinstance(reply, EngineReply)
    assert reply.envelope["type"] == "call"
    assert reply.envelope["function_calls"] == [{"name": "set_lights", "arguments": {"room": "kitchen", "on": True}}]
    assert 0 < reply.envelope["confidence"] <= 1
    assert (reply.replayed_turns, reply.reinitialized, reply.cached) == (1, True, False)
    assert reply.compute_s > 0
    assert reply.queue_wait_s >= 0


async def test_the_second_equal_question_gets_the_same_answer_without_loading_anew(engine):
    first = await ask(engine, "turn on the kitchen lights")
    second = await ask(engine, "turn on the kitchen lights")
    assert second.envelope["function_calls"] == first.envelope["function_calls"]
    assert second.envelope["confidence"] == first.envelope["confidence"]
    assert second.reinitialized is False


async def test_concurrent_questions_are_all_answered(engine):
    replies = await asyncio.gather(*(ask(engine, "turn on the kitchen lights") for _ in range(12)))
    assert {reply.envelope["function_calls"][0]["arguments"]["room"] for reply in replies} == {"kitchen"}


async def test_text_that_no_engine_can_read_is_an_outcome(engine):
    for bad in (task("a\0b"), task("\ud800")):
        outcome = await engine.complete(bad, deadline_s=20)
        assert isinstance(outcome, EngineFailure)
        assert outcome.reason == "bad-text"


async def test_malformed_tools_are_an_outcome(engine):
    outcome = await engine.complete(Task("", "{not json", ("turn on the kitchen lights",)), deadline_s=20)
    assert isinstance(outcome, EngineFailure)
    assert outcome.reason == "engine-error"


async def test_it_goes_on_after_bad_questions(engine):
    await engine.complete(task("a\0b"), deadline_s=20)
    await engine.complete(Task("", "{not json", ("x",)), deadline_s=20)
    assert isinstance(await ask(engine, "turn on the kitchen lights"), EngineReply)


async def test_health_names_backend_model_state_and_processes(engine, backend):
    health = engine.health()
    assert health.state is EngineState.READY
    assert (health.backend, health.model) == (backend[0].backend, backend[0].model)
    assert (health.workers, health.queue_depth, health.restarts) == (1, 0, 0)
    assert len(health.pids) == 1
    assert alive(health.pids[0])


async def test_a_killed_process_is_replaced_and_answers(engine):
    import os
    import signal

    (pid,) = engine.health().pids
    os.kill(pid, signal.SIGKILL)
    await until(lambda: engine.health().restarts == 1 and engine.health().state is EngineState.READY)
    assert engine.health().pids != (pid,)
    assert isinstance(await ask(engine, "turn on the kitchen lights"), EngineReply)


async def test_no_process_is_left_when_it_is_closed(engine):
    pids = engine.health().pids
    await engine.aclose()
    assert [alive(pid) for pid in pids] == [False]
    outcome = await ask(engine, "turn on the kitchen lights")
    assert isinstance(outcome, EngineFailure)
    assert outcome.reason == "engine-off"


async def test_it_can_be_started_again_after_it_was_closed(engine):
    await engine.aclose()
    await engine.start()
    await until(lambda: engine.health().state is EngineState.READY)
    assert isinstance(await ask(engine, "turn on the kitchen lights"), EngineReply)
