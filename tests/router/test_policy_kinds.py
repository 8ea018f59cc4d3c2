"""Policies at work in a running router: what a client sees, what the engine ran, what the ledger notes."""

import json
import time

import httpx
import pytest
from tests.router.support import KITCHEN, LIGHT, TEXT, WEATHER, CannedUpstream, ask, config_for, envelope, running
from tests.servers import until

from needle_router.explaining import explain
from needle_router.ledger import Ledger, read_ledger
from needle_router.records import DecisionRecord

pytestmark = pytest.mark.anyio
SURE = {"envelopes": [envelope(KITCHEN, confidence=0.97)]}
UNSURE = {"envelopes": [envelope(KITCHEN, confidence=0.6)]}
#: Asks at 2 and 8 USD per million tokens: one forwarded answer of 40 and 6 tokens costs 0.000128.
ONE_ANSWER_USD = 0.000128


def policies(*tables, minimum=0.7):
    return [{"kind": "guards"}, *tables, {"kind": "threshold", "minimum": minimum}]


async def post(router, body=None, **headers):
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(f"{router.url}/v1/chat/completions", json=body or ask(), headers=headers)


def route(answer):
    return answer.headers["x-needle-route"], answer.headers["x-needle-reason"]


def marked(tool, **marks):
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": {**function["parameters"], **marks}}}


@pytest.mark.parametrize(
    ("marks", "seen"),
    [
        pytest.param({}, ("local", "confident"), id="no mark: writing, and sure enough"),
        pytest.param({"x-needle-risk": "never"}, ("upstream", "tool-never"), id="never"),
        pytest.param({"x-needle-local": "never"}, ("upstream", "tool-never"), id="never local"),
        pytest.param({"x-needle-risk": "harmless"}, ("local", "confident"), id="an unknown word is writing"),
    ],
)
async def test_the_marks_of_a_schema_reach_the_policy(tmp_path, marks, seen):
    async with running(tmp_path, SURE, policy=policies({"kind": "side-effects"})) as router:
        assert route(await post(router, ask(tools=[marked(LIGHT, **marks), WEATHER]))) == seen


async def test_a_call_that_reads_may_be_less_sure_than_one_that_writes(tmp_path):
    script = {"envelopes": [envelope(KITCHEN, confidence=0.85)]}
    async with running(tmp_path, script, policy=policies({"kind": "side-effects"})) as router:
        assert route(await post(router)) == ("upstream", "below-risk")
        tools = [marked(LIGHT, **{"x-needle-risk": "read"}), WEATHER]
        assert route(await post(router, ask(tools=tools))) == ("local", "confident")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        pytest.param({"kind": "shadow", "tools": ["set_*"]}, "shadow-policy", id="a tool in shadow"),
        pytest.param({"kind": "shadow"}, "shadow-policy", id="everything in shadow"),
        pytest.param({"kind": "canary", "share": 0.0}, "canary-rest", id="outside the canary"),
        pytest.param(
            {"kind": "canary", "share": 1.0, "tools": {"set_light": 0.0}}, "canary-rest", id="outside by tool"
        ),
    ],
)
async def test_what_is_in_shadow_is_forwarded_and_compared_with_one_run_of_the_engine(tmp_path, table, reason):
    upstream = CannedUpstream(words="", calls=[KITCHEN])
    async with running(tmp_path, SURE, upstream=upstream, policy=policies(table)) as router:
        assert route(await post(router)) == ("upstream", reason)
        await until(lambda: router.router.services.totals.reasons())
        assert router.fed() == [TEXT]
    (record,) = read_ledger(tmp_path / "decisions.db")
    assert (record.reason, record.comparison, record.engine_ran) == (reason, "agree", True)


@pytest.mark.parametrize(
    ("given", "comparison"),
    [
        pytest.param({"room": "kitchen", "on": True, "fade": 2}, "agree", id="the default, spelt out"),
        pytest.param({"room": " Kitchen", "on": True}, "agree", id="left out by both"),
        pytest.param({"room": "kitchen", "on": True, "fade": 3}, "arguments-differ", id="another value"),
    ],
)
async def test_an_argument_left_out_is_compared_as_its_default(tmp_path, given, comparison):
    parameters = LIGHT["function"]["parameters"]
    fading = {**parameters["properties"], "fade": {"type": "number", "default": 2}}
    tool = {**LIGHT, "function": {**LIGHT["function"], "parameters": {**parameters, "properties": fading}}}
    heard = []
    upstream = CannedUpstream(words="", calls=[{"name": "set_light", "arguments": given}])
    async with running(tmp_path, SURE, upstream=upstream, mode="shadow") as router:
        router.router.services.on_compared.append(heard.append)
        await post(router, ask(tools=[tool, WEATHER]))
        await until(lambda: heard)
    assert heard[0].comparison == comparison


async def test_listeners_hear_of_every_comparison_and_cannot_break_a_record(tmp_path):
    heard = []
    upstream = CannedUpstream(words="", calls=[KITCHEN])
    async with running(tmp_path, SURE, upstream=upstream, policy=policies({"kind": "shadow"})) as router:
        router.router.services.on_compared += [lambda record: 1 / 0, heard.append]
        await post(router)
        await until(lambda: heard)
        assert [(record.tools_called, record.comparison) for record in heard] == [(("set_light",), "agree")]
        assert router.totals["upstream"]["requests"] == 1
        await post(router, **{"x-needle-mode": "force-upstream"})
        await until(lambda: router.totals["upstream"]["requests"] == 2)
        assert len(heard) == 1


async def test_outside_a_canary_that_forwards_the_engine_does_not_run(tmp_path):
    table = {"kind": "canary", "share": 0.0, "rest": "forward"}
    async with running(tmp_path, SURE, policy=policies(table)) as router:
        assert route(await post(router)) == ("upstream", "canary-rest")
        assert router.fed() == []


async def test_the_gate_shuts_after_answers_that_were_not_used(tmp_path):
    table = {"kind": "adaptive", "attempts": 2, "probes": 0.0}
    async with running(tmp_path, UNSURE, policy=policies(table)) as router:
        seen = [route(await post(router)) for _ in range(3)]
        assert seen == [("upstream", "below-threshold")] * 2 + [("upstream", "gate-shut")]
        assert len(router.fed()) == 2
        assert route(await post(router, ask(tools=[LIGHT]))) == ("upstream", "below-threshold")


async def test_a_spent_budget_lowers_the_threshold(tmp_path):
    table = {"kind": "budget", "daily_usd": ONE_ANSWER_USD, "minimum": 0.6}
    async with running(tmp_path, UNSURE, policy=policies(table)) as router:
        assert route(await post(router)) == ("upstream", "below-threshold")
        assert route(await post(router)) == ("local", "budget-lowered")


async def test_a_spent_budget_refuses_what_would_cost_and_nothing_else(tmp_path):
    table = {"kind": "budget", "monthly_usd": ONE_ANSWER_USD, "then": "refuse"}
    async with running(tmp_path, SURE, policy=policies(table)) as router:
        chat = {"model": "big", "messages": [{"role": "user", "content": "tell me a joke"}]}
        assert route(await post(router, chat)) == ("upstream", "no-tools")
        refused = await post(router, chat)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_exceeded")
        assert refused.headers["x-should-retry"] == "false"
        assert "retry-after" not in refused.headers
        assert route(refused) == ("local", "budget-exceeded")
        assert route(await post(router)) == ("local", "confident")
        assert len(router.upstream.bodies) == 1
        assert router.totals["upstream"]["cost_usd"] == ONE_ANSWER_USD
        assert (router.totals["local"]["requests"], router.totals["refused"]["requests"]) == (1, 1)


@pytest.mark.parametrize("mode", ["off", "shadow", "force-upstream"])
async def test_a_header_does_not_lead_around_a_cap(tmp_path, mode):
    table = {"kind": "budget", "daily_usd": 0.0, "then": "refuse"}
    async with running(tmp_path, SURE, policy=policies(table)) as router:
        refused = await post(router, **{"x-needle-mode": mode})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_exceeded")
        async with httpx.AsyncClient(timeout=20) as http:
            broken = await http.post(f"{router.url}/v1/chat/completions", content=b"{")
            old = await http.post(f"{router.url}/v1/completions", json={"model": "big", "prompt": "x"})
        assert (broken.status_code, old.status_code) == (429, 429)
        assert router.upstream.bodies == []


async def test_in_mode_shadow_nothing_is_refused(tmp_path):
    table = {"kind": "budget", "daily_usd": 0.0, "then": "refuse"}
    async with running(tmp_path, SURE, mode="shadow", policy=policies(table)) as router:
        assert (await post(router)).status_code == 200
        await until(lambda: router.router.services.totals.reasons())


@pytest.mark.parametrize(
    ("when", "text", "seen"),
    [
        pytest.param("always", TEXT, (200, "confident"), id="complete calls are answered without the words"),
        pytest.param("mixed", f"{TEXT} and tell me a joke", (429, "budget-exceeded"), id="a wish is left"),
    ],
)
async def test_what_would_be_merged_costs_too(tmp_path, when, text, seen):
    table = {"kind": "budget", "daily_usd": 0.0, "then": "refuse"}
    async with running(tmp_path, SURE, merge={"when": when}, policy=policies(table)) as router:
        answer = await post(router, ask(text))
        assert (answer.status_code, answer.headers["x-needle-reason"]) == seen
        assert router.upstream.bodies == []


async def test_explain_knows_what_was_spent(tmp_path):
    table = {"kind": "budget", "monthly_usd": 1.0, "then": "refuse"}
    config = config_for(tmp_path, UNSURE, upstream="http://127.0.0.1:9/v1", policy=policies(table))
    shown = await explain(config, json.dumps(ask()).encode())
    assert (shown["route"], shown["reason"]) == ("upstream", "below-threshold")
    ledger = Ledger(tmp_path / "decisions.db")
    ledger.start()
    ledger.put(DecisionRecord(time_s=time.time() - 1, route="upstream", reason="no-tools", cost_usd=1.0))
    ledger.close()
    shown = await explain(config, json.dumps(ask()).encode())
    assert (shown["route"], shown["reason"], shown["policy"]) == ("local", "budget-exceeded", "budget")
