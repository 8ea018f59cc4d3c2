"""The runner with real engine processes that follow a script."""

import datetime
import json
import time

import anyio
import msgspec
import pytest

from needle_router.build import build, wait_until_loaded
from needle_router.config.schema import Config, Engine
from needle_router.engine.base import EngineState
from needle_router.replay.cases import Case, Example, case_of
from needle_router.replay.grading import TheseCalls
from needle_router.replay.run import Conditions, EngineMissing, offline, replay
from needle_router.surfaces.chat import parse

DAY = datetime.date(2026, 11, 30)
LIGHTS = {
    "name": "set_lights",
    "description": "Turn a room's lights on or off",
    "parameters": {
        "type": "object",
        "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
        "required": ["room", "on"],
    },
}
KITCHEN = {"name": "set_lights", "arguments": {"room": "kitchen", "on": True}}
SPOKEN = {"type": "call", "success": True, "confidence": 0.9, "function_calls": [KITCHEN]}
ON = case_of(Example("on", "lights", "turn on the kitchen lights", [LIGHTS], [KITCHEN]))
ATTIC = case_of(Example("attic", "lights", "turn on the attic lights", [LIGHTS], [{**KITCHEN, "arguments": {}}]))


@pytest.fixture
def scripted(tmp_path):
    """Makes a configuration whose engine follows a script."""

    def make(*, policy=None, **script):
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"log": str(tmp_path / "log"), **script}))
        engine = Engine(backend="scripted", script=str(path))
        return msgspec.structs.replace(Config(), engine=engine, **({"policy": policy} if policy else {}))

    return make


async def rows_of(config, *cases, without=frozenset()):
    found = {}
    with anyio.fail_after(30):
        await replay(config, cases, Conditions(DAY, without), found.__setitem__)
    return [found[index] for index in range(len(cases))]


@pytest.mark.anyio
async def test_a_right_call_is_answered_and_graded(scripted):
    (row,) = await rows_of(scripted(envelopes=[SPOKEN]), ON)
    assert (row.name, row.category, row.route, row.reason) == ("on", "lights", "local", "confident")
    assert (row.tools, row.confidence, row.failures) == (("set_lights",), 0.9, ())
    assert (row.asked, row.right, row.silent) == (True, True, False)
    assert len(row.fingerprint) == 16


@pytest.mark.anyio
async def test_the_engine_is_told_the_day_of_the_conditions(scripted, tmp_path):
    await rows_of(scripted(envelopes=[SPOKEN]), ON)
    (started,) = [line for line in map(json.loads, (tmp_path / "log").read_text().splitlines()) if line["op"] == "init"]
    assert started["system"] == "date: 2026-11-30 Mon"


@pytest.mark.anyio
async def test_a_call_that_a_check_holds_back_is_answered_without_that_check(scripted):
    (row,) = await rows_of(scripted(envelopes=[SPOKEN]), ATTIC)
    assert (row.route, row.reason, row.failures, row.right) == ("upstream", "ungrounded", ("ungrounded",), False)
    (row,) = await rows_of(scripted(envelopes=[SPOKEN]), ATTIC, without=frozenset({"ungrounded"}))
    assert (row.route, row.reason, row.failures) == ("local", "confident", ("ungrounded",))


@pytest.mark.anyio
async def test_requests_that_the_engine_is_not_asked_about(scripted, tmp_path):
    plain = Case("plain", "a", json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode())
    broken = Case("broken", "a", b"{", TheseCalls(()))
    rows = await rows_of(scripted(), plain, broken)
    assert [(row.route, row.reason, row.asked, row.right) for row in rows] == [
        ("upstream", "no-tools", False, None),
        ("upstream", "unparsed", False, True),
    ]
    assert not (tmp_path / "log").exists()


@pytest.mark.anyio
async def test_a_shadow_policy_leaves_the_answer_upstream_and_the_engine_is_asked_all_the_same(scripted):
    policy = ({"kind": "guards"}, {"kind": "shadow"})
    (row,) = await rows_of(scripted(envelopes=[SPOKEN], policy=policy), ON)
    assert (row.route, row.reason, row.policy, row.right) == ("upstream", "shadow-policy", "shadow", True)


@pytest.mark.anyio
async def test_an_engine_that_fails_has_called_nothing(scripted):
    (row,) = await rows_of(scripted(**{"raise": "out of memory"}), ON)
    assert (row.route, row.reason, row.tools, row.right) == ("upstream", "engine-error", (), False)


@pytest.mark.anyio
async def test_rows_have_the_index_of_their_case(scripted):
    names = [str(number) for number in range(20)]
    cases = [Case(name, "a", ON.body, ON.wanted) for name in names]
    assert [row.name for row in await rows_of(scripted(envelopes=[SPOKEN]), *cases)] == names


@pytest.mark.anyio
async def test_an_engine_that_does_not_load_is_missing(scripted):
    config = scripted()
    gone = msgspec.structs.replace(config.engine, script="no/such.json")
    with pytest.raises(EngineMissing, match=r"engine\.script .*no/such\.json cannot be read"):
        await rows_of(msgspec.structs.replace(config, engine=gone), ON)


@pytest.mark.anyio
async def test_a_replay_that_is_cancelled_leaves_no_process(scripted, tmp_path):
    started = time.monotonic()
    with anyio.move_on_after(30) as scope:

        def note(index, row):
            scope.cancel()

        await replay(scripted(envelopes=[SPOKEN], delay_ms=50), [ON] * 1000, Conditions(DAY), note)
    assert scope.cancelled_caught
    assert time.monotonic() - started < 30
    asked = [line for line in map(json.loads, (tmp_path / "log").read_text().splitlines()) if line["op"] == "complete"]
    assert len(asked) < 10


@pytest.mark.parametrize(
    ("engine", "deadline_s", "queue_limit"),
    [
        pytest.param(Engine(), 60.0, 32, id="the defaults get a minute"),
        pytest.param(Engine(deadline_s=90), 90, 32, id="more is kept"),
        pytest.param(Engine(queue_limit=1, workers=4), 60.0, 8, id="the queue holds what is under way"),
    ],
)
def test_offline_there_is_time_and_room(engine, deadline_s, queue_limit):
    found = offline(Config(mode="shadow", engine=engine))
    assert (found.mode, found.engine.deadline_s, found.engine.queue_limit) == ("on", deadline_s, queue_limit)


@pytest.mark.anyio
async def test_a_replay_decides_as_the_router_does(scripted):
    texts = ("turn on the kitchen lights", "don't turn on the kitchen lights", "turn on the attic lights", "hello")
    bodies = [json.dumps({"messages": [{"role": "user", "content": text}]}).encode() for text in texts]
    cases = [case_of(Example(text, "a", text, [LIGHTS], [])) for text in texts]
    cases += [Case(text, "a", body) for text, body in zip(texts, bodies, strict=True)]
    config = scripted(envelopes=[SPOKEN])
    rows = await rows_of(config, *cases)
    services = build(config, upstream=True, may_fetch=False)
    await services.engine.start()
    try:
        assert await wait_until_loaded(services.engine) is EngineState.READY
        verdicts = [await services.pipeline.decide(parse(case.body), "on") for case in cases]
    finally:
        await services.engine.aclose()
    assert [(row.reason, row.policy) for row in rows] == [(v.reason, v.policy) for v in verdicts]
    assert {row.reason for row in rows} >= {"confident", "negated", "ungrounded", "no-tools"}
