"""Local answers that are put to the upstream as well: compared, priced, and never in the client's way."""

import asyncio
import contextlib
import gzip
import json
import logging

import httpx
import pytest
from tests.router.support import (
    HEAD,
    KITCHEN,
    TEXT,
    WEATHER,
    CannedUpstream,
    Running,
    alone,
    ask,
    config_for,
    envelope,
    running,
)
from tests.servers import answer, connected, recording, request, serving, until

from needle_router import create_app
from needle_router.cli.explain import lines
from needle_router.engine.base import EngineState
from needle_router.explaining import explain
from needle_router.ledger import read_ledger

pytestmark = pytest.mark.anyio
SURE = {"envelopes": [envelope(KITCHEN, confidence=0.97)]}
JSON = (b"content-type", b"application/json")
#: 40 and 6 tokens at 2 and 8 USD per million.
ONE_ANSWER_USD = 0.000128


def policies(*more, **options):
    audit = {"kind": "audit", "share": 1.0, **options}
    return [{"kind": "guards"}, audit, *more, {"kind": "threshold", "minimum": 0.7}]


def completion(*calls):
    made = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": c["name"], "arguments": json.dumps(c["arguments"])},
        }
        for n, c in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": made}
    usage = {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}
    return {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": usage}


@contextlib.asynccontextmanager
async def auditing(folder, base_url, *more, script=SURE, **options):
    config = config_for(folder, script, upstream=base_url, policy=policies(*more, **options), engine={"deadline_s": 30})
    router = create_app(config)
    async with serving(router, lifespan="on") as url:
        await until(lambda: router.services.engine.health().state is not EngineState.LOADING)
        yield Running(url, router, None, folder)


async def post(router, body=None, **headers):
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(f"{router.url}/v1/chat/completions", json=body or ask(), headers=headers)


def raw(body):
    return request(b"POST", b"/v1/chat/completions", JSON, body=json.dumps(body).encode())


async def audited(router, count=1):
    """Wait until `count` audits are over; gives what `/-/status.json` says of them."""
    found = ("compared", "unread", "failed", "timeout", "dropped")
    await until(lambda: sum(router.totals["audits"][name] for name in found) == count)
    return router.totals["audits"]


def records(folder):
    return list(read_ledger(folder / "decisions.db"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("calls", "comparison"),
    [
        pytest.param([KITCHEN], "agree", id="the same call"),
        pytest.param(
            [{**KITCHEN, "arguments": {"room": "kitchen", "on": False}}], "arguments-differ", id="another room"
        ),
        pytest.param([], "upstream-none", id="no call"),
    ],
)
async def test_an_answer_is_compared_with_what_the_upstream_says_of_the_same_bytes(tmp_path, calls, comparison, stream):
    heard = []
    upstream = CannedUpstream(words="Fine.", calls=calls)
    body = json.dumps(ask(stream=stream), indent=3).encode()
    async with running(tmp_path, SURE, upstream=upstream, policy=policies()) as router:
        router.router.services.on_compared.append(heard.append)
        async with httpx.AsyncClient(timeout=20) as http:
            answered = await http.post(
                f"{router.url}/v1/chat/completions", content=body, headers={"content-type": "application/json"}
            )
        assert (answered.headers["x-needle-route"], answered.headers["x-needle-reason"]) == ("local", "confident")
        assert answered.text.count("call_up") == 0
        totals = await audited(router)
        assert (totals["compared"], totals["agree"]) == (1, int(comparison == "agree"))
        assert upstream.bodies == [body]
        assert upstream.headers[0]["accept-encoding"] == "identity"
        assert router.totals["upstream"]["requests"] == 0
    assert [record.comparison for record in heard] == [comparison]
    (record,) = records(tmp_path)
    assert (record.route, record.audit, record.comparison) == ("local", "compared", comparison)
    assert (record.usage, record.cost_usd) == (None, None)


async def test_what_an_audit_costs_is_counted_by_itself_and_as_spent(tmp_path):
    upstream = CannedUpstream(words="", calls=[KITCHEN])
    async with running(tmp_path, SURE, upstream=upstream, policy=policies()) as router:
        await post(router)
        totals = await audited(router)
        assert (totals["prompt_tokens"], totals["completion_tokens"], totals["cost_unknown"]) == (40, 6, 0)
        assert totals["cost_usd"] == ONE_ANSWER_USD
        assert router.totals["upstream"]["cost_usd"] == 0
        assert router.router.services.spend.now()[0] == ONE_ANSWER_USD
        await post(router, ask(model="nobody-knows-it"))
        assert (await audited(router, 2))["cost_unknown"] == 1
        shown = router.router.services.metrics.render()[0].decode()
        assert 'needle_router_audits_total{outcome="compared"} 2.0' in shown
        assert f"needle_router_cost_audits_usd_total {ONE_ANSWER_USD}" in shown
        assert 'needle_router_cost_unknown_total{kind="audits"} 1.0' in shown
    first, second = records(tmp_path)
    assert (first.audit_usage.prompt_tokens, first.audit_usd) == (40, ONE_ANSWER_USD)
    assert (second.audit_usage.prompt_tokens, second.audit_usd) == (40, None)


async def test_only_tools_of_the_sample_are_audited(tmp_path):
    upstream = CannedUpstream(calls=[KITCHEN])
    options = {"share": 0.0, "tools": {"get_weather": 1.0}}
    weather = {"name": "get_weather", "arguments": {"city": "Oslo"}}
    script = {"envelopes": [envelope(KITCHEN), envelope(weather)]}
    async with running(tmp_path, script, upstream=upstream, policy=policies(**options)) as router:
        await post(router)
        await post(router, ask("weather in Oslo", tools=[WEATHER]))
        await audited(router)
        assert len(upstream.bodies) == 1
    assert [record.audit for record in records(tmp_path)] == ["", "compared"]


async def test_a_hanging_audit_holds_up_nobody_and_the_next_one_finds_no_place(tmp_path):
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def held(recorded, peer):
        asked.set()
        await go_on.wait()
        await peer.write(answer(200, json.dumps(completion(KITCHEN)).encode(), JSON))

    async with (
        recording(held) as upstream,
        auditing(tmp_path, upstream.base_url, concurrency=1) as router,
        connected(router.url) as client,
    ):
        for number in range(2):
            # The second answer comes on the same connection, while the first one's audit hangs.
            answered = await client.ask(raw(ask()))
            assert (answered.status, answered.values(b"x-needle-route")) == (200, [b"local"])
            await asked.wait()
            await until(lambda wanted=number: router.totals["audits"]["dropped"] == wanted)
        go_on.set()
        totals = await audited(router, 2)
        assert (totals["compared"], totals["dropped"]) == (1, 1)
        assert len(upstream.requests) == 1
    assert [record.audit for record in records(tmp_path)] == ["dropped", "compared"]


async def test_an_audit_ends_at_its_deadline(tmp_path):
    async def silent(recorded, peer):
        await peer.gone()

    async with recording(silent) as upstream, auditing(tmp_path, upstream.base_url, deadline_s=1) as router:
        assert (await post(router)).status_code == 200
        totals = await audited(router)
        assert (totals["timeout"], totals["cost_unknown"]) == (1, 1)
        await until(lambda: upstream.ended == 1)
    assert [record.audit for record in records(tmp_path)] == ["timeout"]


async def test_a_client_that_hangs_up_with_its_answer_does_not_stop_the_audit(tmp_path):
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def held(recorded, peer):
        asked.set()
        await go_on.wait()
        await peer.write(answer(200, json.dumps(completion(KITCHEN)).encode(), JSON))

    async with recording(held) as upstream, auditing(tmp_path, upstream.base_url) as router:
        async with connected(router.url) as client:
            await client.ask(raw(ask()))
            await asked.wait()
        go_on.set()
        assert (await audited(router))["agree"] == 1


async def test_a_server_that_stops_leaves_an_audit_and_counts_it(tmp_path):
    asked = asyncio.Event()

    async def silent(recorded, peer):
        asked.set()
        await peer.gone()

    async with recording(silent) as upstream, auditing(tmp_path, upstream.base_url) as router:
        assert (await post(router)).headers["x-needle-route"] == "local"
        await asked.wait()
    (record,) = records(tmp_path)
    assert (record.route, record.audit, record.comparison) == ("local", "dropped", "")


@pytest.mark.parametrize(
    ("given", "outcome", "cost_unknown"),
    [
        pytest.param(answer(500, b"{}", JSON), "failed", 0, id="an error"),
        pytest.param(b"", "failed", 0, id="no answer"),
        pytest.param(answer(200, b"hello", (b"content-type", b"text/plain")), "unread", 1, id="no completion"),
        pytest.param(
            answer(200, json.dumps(completion(KITCHEN)).encode(), JSON)[:-5],
            "unread",
            1,
            id="an answer that breaks off",
        ),
        pytest.param(
            answer(200, gzip.compress(json.dumps(completion(KITCHEN)).encode()), JSON, (b"content-encoding", b"gzip")),
            "unread",
            0,
            id="compressed all the same",
        ),
    ],
)
async def test_an_audit_without_an_answer_that_can_be_read(tmp_path, given, outcome, cost_unknown):
    async def give(recorded, peer):
        await peer.write(given)
        peer.close()

    async with recording(give) as upstream, auditing(tmp_path, upstream.base_url) as router:
        assert (await post(router)).status_code == 200
        totals = await audited(router)
        assert (totals[outcome], totals["agree"], totals["cost_unknown"]) == (1, 0, cost_unknown)


async def test_the_client_s_key_goes_to_the_upstream_and_nowhere_else(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    key = "sk-the-clients-own-0123456789"
    upstream = CannedUpstream(calls=[KITCHEN])
    async with running(tmp_path, SURE, upstream=upstream, policy=policies()) as router:
        await post(router, authorization=f"Bearer {key}", **{"x-needle-mode": "on"})
        await audited(router)
        assert upstream.headers[0]["authorization"] == f"Bearer {key}"
        assert "x-needle-mode" not in upstream.headers[0]
    assert key not in caplog.text
    assert all(key.encode() not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "sections"),
    [
        pytest.param([{"kind": "race"}], {}, id="after a race, whose upstream was asked already"),
        pytest.param([{"kind": "budget", "daily_usd": 0.0}], {}, id="once a budget is spent"),
        pytest.param([{"kind": "budget", "daily_usd": 0.0, "then": "refuse"}], {}, id="once a budget refuses"),
        pytest.param([], {"model": "needle-2"}, id="where the local model was asked for"),
    ],
)
async def test_what_is_never_audited(tmp_path, more, sections):
    async def silent(recorded, peer):
        await peer.gone()

    async with recording(silent) as upstream, auditing(tmp_path, upstream.base_url, *more) as router:
        assert (await post(router, ask(**sections))).headers["x-needle-route"] == "local"
        await until(lambda: router.totals["local"]["requests"])
        assert len(upstream.requests) == (1 if more and more[0]["kind"] == "race" else 0)
    (record,) = records(tmp_path)
    assert record.audit == ""


async def test_needle_alone_has_nobody_to_ask(tmp_path):
    async with alone(tmp_path, SURE, policy=policies()) as router:
        assert (await post(router, ask(TEXT))).headers["x-needle-reason"] == "no-upstream"
        await until(lambda: router.totals["local"]["requests"])
    assert [record.audit for record in records(tmp_path)] == [""]


async def test_an_extraction_is_audited_by_its_object(tmp_path):
    schema = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    upstream = CannedUpstream(words='{"room": "Kitchen"}')
    script = {"envelopes": [envelope({"name": "place", "arguments": {"room": "kitchen"}})]}
    async with running(tmp_path, script, upstream=upstream, policy=policies()) as router:
        answered = await post(router, ask(TEXT, tools=None, response_format=wanted))
        assert answered.headers["x-needle-reason"] == "extracted"
        assert (await audited(router))["agree"] == 1


@pytest.mark.parametrize(
    ("more", "told"),
    [
        pytest.param([], (False, True), id="drawn"),
        pytest.param([{"kind": "race"}], (True, False), id="a race asks already"),
        pytest.param([{"kind": "budget", "daily_usd": 0.0}], (False, False), id="nothing to spend"),
        pytest.param(
            [{"kind": "race"}, {"kind": "budget", "daily_usd": 0.0, "then": "refuse"}],
            (False, False),
            id="a budget that refuses races",
        ),
    ],
)
async def test_explain_tells_of_audits_and_races(tmp_path, more, told):
    config = config_for(tmp_path, SURE, upstream="http://127.0.0.1:9/v1", policy=policies(*more))
    shown = await explain(config, json.dumps(ask()).encode())
    assert (shown["route"], shown["raced"], shown["audited"]) == ("local", *told)
    assert [line.split()[0] for line in lines(shown) if line.startswith(("raced", "audited"))] == [
        name for name, holds in zip(("raced", "audited"), told, strict=True) if holds
    ]


async def test_explain_knows_that_what_is_forwarded_is_not_audited(tmp_path):
    script = {"envelopes": [envelope(KITCHEN, confidence=0.1)]}
    config = config_for(tmp_path, script, upstream="http://127.0.0.1:9/v1", policy=policies())
    shown = await explain(config, json.dumps(ask()).encode())
    assert (shown["reason"], shown["raced"], shown["audited"]) == ("below-threshold", False, False)
