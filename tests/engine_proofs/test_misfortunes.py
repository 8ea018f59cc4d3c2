"""What an engine can do wrong, seen from a client with an upstream behind the router: a good answer, and a reason."""

import asyncio
import json

import httpx
import pytest
from tests.engine.support import alive
from tests.router.support import KITCHEN, TEXT, ask, envelope, running
from tests.servers import until

from needle_router.engine.base import EngineState

pytestmark = pytest.mark.anyio
WORDS = "Hello from upstream."


def misbehaving(*calls, **changes):
    return {"envelopes": [envelope(*calls, **changes)]}


async def check_forwarded(router, reason):
    """One request is forwarded whole, its answer is the upstream's, and nothing of the engine's words is in it."""
    async with httpx.AsyncClient(timeout=20) as http:
        answer = await http.post(f"{router.url}/v1/chat/completions", json=ask())
        alive_too = await http.get(f"{router.url}/healthz")
    assert (answer.status_code, alive_too.status_code) == (200, 200)
    assert (answer.headers["x-needle-route"], answer.headers["x-needle-reason"]) == ("upstream", reason)
    assert answer.json()["choices"][0]["message"]["content"] == WORDS
    assert json.loads(router.upstream.bodies[-1])["messages"][-1]["content"] == TEXT
    assert "x_needle" not in answer.json()


EXTRA = {"name": "set_light", "arguments": {"room": "kitchen", "on": True, "colour": "kitchen"}}
WRONG_TYPE = {"name": "set_light", "arguments": {"room": "kitchen", "on": "yes?"}}
FAILED = {"success": False, "error": "a secret detail", "error_code": "x"}
NAN = '{"type":"call","function_calls":[],"confidence":NaN}'


@pytest.mark.parametrize(
    "script, reason",
    [
        pytest.param({"crash": True}, "engine-crash", id="1 a crash in the middle of a request"),
        pytest.param({"raise": "a secret detail"}, "engine-error", id="7 an error of the wrapper"),
        pytest.param(misbehaving(**FAILED), "engine-error", id="7 of the model"),
        pytest.param({"envelopes": ['{"type":"call","function_ca']}, "engine-garbage", id="4 cut JSON"),
        pytest.param({"envelopes": ["I am a teapot"]}, "engine-garbage", id="4 no JSON"),
        pytest.param({"envelopes": ["\x01\x02 \x7f"]}, "engine-garbage", id="4 binary"),
        pytest.param({"envelopes": [" " * 1_000_000]}, "engine-garbage", id="4 a megabyte of spaces"),
        pytest.param(misbehaving({"name": "open_door", "arguments": {}}), "unknown-tool", id="6 an unknown tool"),
        pytest.param(misbehaving(WRONG_TYPE), "invalid-arguments", id="6 a wrong type"),
        pytest.param(misbehaving(EXTRA), "invalid-arguments", id="6 an argument that is not declared"),
        pytest.param(misbehaving(KITCHEN, confidence=None), "confidence-unknown", id="6 no score"),
        pytest.param(misbehaving(KITCHEN, confidence=2.0), "confidence-unknown", id="6 a score above one"),
        pytest.param(misbehaving(KITCHEN, confidence=-1), "confidence-unknown", id="6 a score below zero"),
        pytest.param(misbehaving(KITCHEN, confidence="0.9"), "confidence-unknown", id="6 a score in quotes"),
        pytest.param({"envelopes": [NAN]}, "engine-garbage", id="6 NaN"),
    ],
)
async def test_the_upstream_answers_instead(tmp_path, script, reason):
    async with running(tmp_path, script) as router:
        await check_forwarded(router, reason)


async def test_1_the_crash_is_counted_and_the_engine_comes_back(tmp_path):
    async with running(tmp_path, {"crash": True}) as router:
        await check_forwarded(router, "engine-crash")
        await until(lambda: router.router.services.engine.health().restarts == 1)
        async with httpx.AsyncClient() as http:
            metrics = (await http.get(f"{router.url}/metrics")).text
        assert "needle_router_engine_restarts_total 1.0" in metrics


async def test_2_an_engine_that_never_starts_is_given_up_and_everything_passes(tmp_path):
    async with running(tmp_path, {"crash_on_load": True}) as router:
        engine = router.router.services.engine
        await until(lambda: engine.health().state is EngineState.FAILED, deadline_s=30)
        await check_forwarded(router, "engine-off")
        async with httpx.AsyncClient() as http:
            ready = await http.get(f"{router.url}/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        # No storm of processes: a handful of tries, and then none that is alive.
        assert engine.health().restarts <= 6
        assert engine.health().pids == ()


async def test_3_a_hanging_engine_is_ended_at_the_deadline_and_the_next_process_answers(tmp_path):
    async with running(tmp_path, {"hang": True}, engine={"deadline_s": 0.4}) as router:
        engine = router.router.services.engine
        (pid,) = engine.health().pids
        script = json.loads((tmp_path / "script.json").read_text())
        del script["hang"]
        # The next process reads the file anew.
        (tmp_path / "script.json").write_text(json.dumps({**script, "envelopes": [envelope(KITCHEN)]}))
        await check_forwarded(router, "engine-timeout")
        await until(lambda: not alive(pid))
        await until(lambda: engine.health().state is EngineState.READY)
        async with httpx.AsyncClient(timeout=20) as http:
            answer = await http.post(f"{router.url}/v1/chat/completions", json=ask())
        assert answer.headers["x-needle-route"] == "local"


async def test_6_the_same_call_twice_in_one_answer_is_made_once_or_not_at_all(tmp_path):
    async with running(tmp_path, misbehaving(KITCHEN, KITCHEN)) as router, httpx.AsyncClient(timeout=20) as http:
        answer = await http.post(f"{router.url}/v1/chat/completions", json=ask())
        made = answer.json()["choices"][0]["message"]["tool_calls"] or []
        assert len(made) <= 1


async def test_8_a_leaking_engine_is_replaced_without_a_failed_request(tmp_path):
    # 300 MB a request against the limit of 1 GB: the fourth request finds a new process.
    script = {"envelopes": [envelope(KITCHEN)], "leak_mb": 300}
    async with running(tmp_path, script, engine={"deadline_s": 20}) as router, httpx.AsyncClient(timeout=30) as http:
        routes = []
        for _ in range(5):
            answer = await http.post(f"{router.url}/v1/chat/completions", json=ask())
            routes.append(answer.headers["x-needle-route"])
            await until(lambda: router.router.services.engine.health().state is EngineState.READY)
        assert routes == ["local"] * 5
        assert router.router.services.engine.health().restarts >= 1


async def test_11_past_the_queue_everybody_is_forwarded_and_the_accepted_are_served(tmp_path):
    script = {"envelopes": [envelope(KITCHEN)], "delay_ms": 400}
    async with running(tmp_path, script, engine={"queue_limit": 2}) as router, httpx.AsyncClient(timeout=20) as http:
        answers = await asyncio.gather(*(http.post(f"{router.url}/v1/chat/completions", json=ask()) for _ in range(12)))
    reasons = [answer.headers["x-needle-reason"] for answer in answers]
    assert {answer.status_code for answer in answers} == {200}
    # Two are let in, and more only where one of them was taken up or done before the last came.
    assert 2 <= reasons.count("confident") <= 5
    assert reasons.count("confident") + reasons.count("engine-busy") == 12
