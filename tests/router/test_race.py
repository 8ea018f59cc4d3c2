"""The engine and the upstream at once, over real sockets: who answers, what stops, and what it cost."""

import asyncio
import contextlib
import json

import httpx
import msgspec
import pytest
from tests.router.support import HEAD, KITCHEN, TEXT, Running, ask, config_for, envelope
from tests.servers import answer, connected, free_port, recording, request, serving, until

from needle_router import NeedleRouter, create_app
from needle_router.engine.base import EngineState
from needle_router.ledger import read_ledger

pytestmark = pytest.mark.anyio
SURE = {"envelopes": [envelope(KITCHEN, confidence=0.97)]}
#: Answers after the upstream has failed.
LATE = {**SURE, "delay_ms": 1000}
#: Answers when nobody waits for it any more.
SLOW = {**SURE, "delay_ms": 60_000}
PATIENT = {"deadline_s": 90}
TOOLS = ("set_light", "get_weather")
UNSURE = {"envelopes": [envelope(KITCHEN, confidence=0.6)]}
RACED = [{"kind": "guards"}, {"kind": "race"}, {"kind": "threshold", "minimum": 0.7}]
JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream")
ODD_BODY = b'{ "choices" : [ ],\n "usage": {"prompt_tokens": 100, "completion_tokens": 10} }  '
MIXED = f"{TEXT} and tell me a joke"


def completion(words):
    message = {"role": "assistant", "content": words}
    usage = {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}
    body = {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    return answer(200, json.dumps(body).encode(), JSON)


class Silent:
    """An upstream that reads the request and answers nothing; `left` is set when its connection is closed."""

    def __init__(self, first=b""):
        self.asked, self.left, self.first = asyncio.Event(), asyncio.Event(), first

    async def __call__(self, recorded, peer):
        if self.first:
            await peer.write(self.first)
        self.asked.set()
        await peer.gone()
        self.left.set()


async def after_the_engine(router, peer, data):
    """Send `data` once the engine's answer has been judged."""
    await until(lambda: router.router.services.pipeline.acceptance.of(TOOLS)[1])
    await peer.write(data)


@contextlib.asynccontextmanager
async def racing(folder, script, base_url, *, include_usage=False, **sections):
    sections = {"policy": RACED, "engine": {"deadline_s": 30}, **sections}
    config = config_for(folder, script, upstream=base_url, **sections)
    asking = msgspec.structs.replace(config.upstream, include_usage=include_usage)
    router = create_app(msgspec.structs.replace(config, upstream=asking))
    async with serving(router, lifespan="on") as url:
        await until(lambda: router.services.engine.health().state is not EngineState.LOADING)
        yield Running(url, router, None, folder)


async def post(router, body=None, **headers):
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(f"{router.url}/v1/chat/completions", json=body or ask(), headers=headers)


def raw(body):
    return request(b"POST", b"/v1/chat/completions", JSON, body=json.dumps(body).encode())


def route(answered):
    return answered.headers["x-needle-route"], answered.headers["x-needle-reason"]


def records(folder):
    return list(read_ledger(folder / "decisions.db"))


def metric(router, line):
    text = router.router.services.metrics.render()[0].decode()
    return next(float(found.rpartition(" ")[2]) for found in text.splitlines() if found.startswith(line))


@pytest.mark.parametrize("stream", [False, True])
async def test_the_engine_is_first_and_the_upstream_is_hung_up_on(tmp_path, stream):
    silent = Silent()
    async with recording(silent) as upstream, racing(tmp_path, SURE, upstream.base_url) as router:
        answered = await post(router, ask(stream=stream))
        assert (answered.status_code, *route(answered)) == (200, "local", "confident")
        assert "set_light" in answered.text
        assert answered.text.endswith("data: [DONE]\n\n") == stream
        await until(silent.left.is_set)
        assert (len(upstream.requests), upstream.opened) == (1, 1)
        totals = router.totals
        assert totals["local"]["requests"] == 1
        assert totals["races"] == {"local": 1, "upstream": 0, "merged": 0}
        assert (totals["wasted"]["requests"], totals["wasted"]["cost_unknown"]) == (1, 0)
        # Two USD per million prompt tokens.
        wasted = totals["wasted"]["prompt_tokens"]
        assert wasted > 40
        assert totals["wasted"]["cost_usd"] == pytest.approx(wasted * 2 / 1e6)
        assert totals["saved"]["prompt_tokens"] > 0
        assert metric(router, 'needle_router_races_total{route="local"}') == 1
        assert metric(router, "needle_router_cost_wasted_usd_total") == pytest.approx(wasted * 2 / 1e6)
        assert router.router.services.spend.now()[0] == pytest.approx(wasted * 2 / 1e6)
    (record,) = records(tmp_path)
    assert (record.route, record.raced, record.usage, record.cost_usd) == ("local", True, None, None)
    assert (record.wasted.prompt_tokens, record.wasted.completion_tokens, record.wasted.estimated) == (wasted, 0, True)
    assert record.wasted_usd == pytest.approx(wasted * 2 / 1e6)


async def test_what_an_unknown_model_wasted_is_unknown(tmp_path):
    silent = Silent()
    async with recording(silent) as upstream, racing(tmp_path, SURE, upstream.base_url) as router:
        assert route(await post(router, ask(model="nobody-knows-it"))) == ("local", "confident")
        assert (router.totals["wasted"]["cost_unknown"], router.totals["wasted"]["cost_usd"]) == (1, 0.0)
        assert metric(router, 'needle_router_cost_unknown_total{kind="wasted"}') == 1
    (record,) = records(tmp_path)
    assert record.wasted_usd is None
    assert record.wasted.prompt_tokens > 40


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param(JSON, ODD_BODY, id="json"),
        pytest.param(SSE, b'data: {"choices": []}\r\n\r\ndata:  [DONE]\n\n', id="stream"),
    ],
)
async def test_the_upstream_is_first_and_its_bytes_are_relayed(tmp_path, kind, body):
    given = answer(200, body, kind, (b"x-odd", b"1"), (b"x-odd", b"2"))
    async with recording(given) as upstream, racing(tmp_path, SLOW, upstream.base_url, engine=PATIENT) as router:
        async with connected(router.url) as client:
            answered = await client.ask(raw(ask(stream=kind == SSE)))
        assert (answered.status, answered.body, answered.clean) == (200, body, True)
        assert answered.values(b"x-odd") == [b"1", b"2"]
        assert answered.values(b"x-needle-reason") == [b"race-lost"]
        assert len(upstream.requests) == 1
        await until(lambda: router.totals["races"]["upstream"])
        assert router.totals["wasted"]["requests"] == 0
        # The engine was left in peace: it serves the next request, in the same process.
        assert (await post(router, ask("hello"), **{"x-needle-mode": "off"})).status_code == 200
        assert router.router.services.engine.health().restarts == 0
    first = records(tmp_path)[0]
    assert (first.route, first.reason, first.policy, first.raced, first.wasted) == (
        "upstream",
        "race-lost",
        "race",
        True,
        None,
    )
    assert first.usage == (None if kind == SSE else first.usage)


async def test_the_usage_of_a_relayed_stream_is_asked_for_and_hidden_where_configured(tmp_path):
    words = {**HEAD, "choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}]}
    last = {**HEAD, "choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 6}}
    shown = b"data: " + json.dumps(words).encode() + b"\n\n"
    given = answer(200, shown + b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n", SSE)
    options = {"include_usage": True, "engine": PATIENT}
    async with recording(given) as upstream, racing(tmp_path, SLOW, upstream.base_url, **options) as router:
        answered = await post(router, ask(stream=True))
        assert answered.content == shown + b"data: [DONE]\n\n"
        assert json.loads(upstream.requests[0].body)["stream_options"] == {"include_usage": True}
    (record,) = records(tmp_path)
    assert (record.raced, record.usage.prompt_tokens, record.usage.completion_tokens) == (True, 40, 6)


async def test_an_answer_that_fails_a_check_leaves_the_upstream_to_answer(tmp_path):
    async def late(recorded, peer):
        await after_the_engine(router, peer, completion("Hello."))

    async with recording(late) as upstream, racing(tmp_path, UNSURE, upstream.base_url) as router:
        answered = await post(router)
        assert route(answered) == ("upstream", "below-threshold")
        assert answered.headers["x-needle-confidence"] == "0.6000"
        assert answered.json()["choices"][0]["message"]["content"] == "Hello."
        assert len(upstream.requests) == 1
    (record,) = records(tmp_path)
    assert (record.reason, record.confidence, record.usage.prompt_tokens) == ("below-threshold", 0.6, 40)
    assert (record.raced, record.saved, record.wasted) == (True, None, None)


@pytest.mark.parametrize("begun", [False, True], ids=["before an answer", "in the middle of the upstream's"])
async def test_a_client_that_leaves_ends_both_legs(tmp_path, begun):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n8\r\ndata: a\n\r\n"
    silent = Silent(head if begun else b"")
    async with recording(silent) as upstream, racing(tmp_path, SLOW, upstream.base_url, engine=PATIENT) as router:
        async with connected(router.url) as client:
            await client.write(raw(ask(stream=True)))
            await until(silent.asked.is_set)
            if begun:
                assert (await client.head())[0] == 200
        await until(silent.left.is_set)
        await until(lambda: router.totals["upstream"]["requests"])
        assert router.totals["local"]["requests"] == 0
        assert len(upstream.requests) == 1
    (record,) = records(tmp_path)
    assert (record.route, record.error, record.raced) == ("upstream", "cut", True)
    assert (record.status, record.reason) == ((200, "race-lost") if begun else (0, "race-left"))
    assert (record.wasted is None) == begun


@pytest.mark.parametrize("first", [answer(500, b"{}", JSON), answer(429, b"{}", JSON), b""], ids=["500", "429", "cut"])
async def test_an_upstream_that_fails_first_has_not_won(tmp_path, first):
    async def fail(recorded, peer):
        await peer.write(first)
        peer.close()

    async with recording(fail) as upstream, racing(tmp_path, LATE, upstream.base_url) as router:
        assert route(await post(router)) == ("local", "confident")
        assert len(upstream.requests) == 1
        assert router.totals["wasted"]["requests"] == 0


async def test_an_upstream_that_cannot_be_reached_has_not_won(tmp_path):
    async with racing(tmp_path, LATE, f"http://127.0.0.1:{free_port()}") as router:
        assert route(await post(router)) == ("local", "confident")


async def test_an_error_of_the_upstream_is_relayed_where_the_engine_is_unsure(tmp_path):
    given = answer(429, b'{"error": "slow"}', JSON, (b"retry-after", b"7"))
    async with recording(given) as upstream, racing(tmp_path, {**UNSURE, "delay_ms": 200}, upstream.base_url) as router:
        answered = await post(router)
        assert (answered.status_code, answered.content) == (429, b'{"error": "slow"}')
        assert answered.headers["retry-after"] == "7"
        assert route(answered) == ("upstream", "below-threshold")
        assert len(upstream.requests) == 1


async def test_an_upstream_that_breaks_off_after_it_has_won_is_not_ended_as_whole(tmp_path):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n8\r\ndata: a\n\r\n"

    async def broken(recorded, peer):
        await peer.write(head)
        peer.reset()

    async with recording(broken) as upstream, racing(tmp_path, SLOW, upstream.base_url, engine=PATIENT) as router:
        async with connected(router.url) as client:
            answered = await client.ask(raw(ask(stream=True)))
        assert not answered.clean
        assert b"upstream_disconnected" in answered.body
        assert b"[DONE]" not in answered.body
        assert len(upstream.requests) == 1
    (record,) = records(tmp_path)
    assert (record.route, record.error, record.saved) == ("upstream", "exception", None)


@pytest.mark.parametrize(
    ("header", "reason"), [("shadow", "shadow"), ("off", "mode-off"), ("force-upstream", "force-upstream")]
)
async def test_a_tightened_mode_is_no_race(tmp_path, header, reason):
    async with recording(completion("Hello.")) as upstream, racing(tmp_path, SURE, upstream.base_url) as router:
        assert route(await post(router, **{"x-needle-mode": header})) == ("upstream", reason)
        await until(lambda: router.totals["upstream"]["requests"])
        assert len(upstream.requests) == 1
    (record,) = records(tmp_path)
    assert not record.raced


async def test_a_request_that_the_engine_cannot_serve_is_no_race(tmp_path):
    async with recording(completion("Hello.")) as upstream, racing(tmp_path, SURE, upstream.base_url) as router:
        assert route(await post(router, ask(n=2))) == ("upstream", "many-choices")
        assert router.totals["races"] == {"local": 0, "upstream": 0, "merged": 0}


async def test_a_spent_budget_that_refuses_keeps_the_upstream_out_of_the_race(tmp_path):
    policy = [RACED[0], {"kind": "budget", "daily_usd": 0.0, "then": "refuse"}, *RACED[1:]]
    async with (
        recording(completion("x")) as upstream,
        racing(tmp_path, SURE, upstream.base_url, policy=policy) as router,
    ):
        assert route(await post(router)) == ("local", "confident")
        assert (upstream.requests, router.totals["races"]["local"]) == ([], 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_words_are_merged_from_the_race_s_own_upstream_call(tmp_path, stream):
    async def late(recorded, peer):
        await after_the_engine(router, peer, streamed("Why not?") if stream else completion("Why not?"))

    async with recording(late) as upstream, racing(tmp_path, SURE, upstream.base_url) as router:
        answered = await post(router, ask(MIXED, stream=stream))
        assert route(answered) == ("merged", "merged")
        assert "set_light" in answered.text
        assert "Why not?" in answered.text
        assert len(upstream.requests) == 1
        assert upstream.requests[0].values(b"accept-encoding") == [b"identity"]
        await until(lambda: router.totals["races"]["merged"])
        assert router.totals["wasted"]["requests"] == 0
    (record,) = records(tmp_path)
    assert (record.route, record.raced, record.saved) == ("merged", True, None)


def streamed(words):
    chunk = {**HEAD, "object": "chat.completion.chunk"}
    first = {
        **chunk,
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": words}, "finish_reason": None}],
    }
    last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    body = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in (first, last)) + b"data: [DONE]\n\n"
    return answer(200, body, SSE)


async def test_an_upstream_that_fails_a_merge_of_the_race_is_told_as_it_is(tmp_path):
    given = answer(503, b'{"error": "no"}', JSON)
    async with recording(given) as upstream, racing(tmp_path, SURE, upstream.base_url) as router:
        answered = await post(router, ask(MIXED))
        assert (answered.status_code, answered.content) == (503, b'{"error": "no"}')
        assert len(upstream.requests) == 1


async def test_a_race_inside_an_app_asks_the_app_once_and_stops_it(tmp_path):
    seen = []

    async def app(scope, receive, send):
        seen.append("asked")
        await receive()
        try:
            await asyncio.sleep(30)
        finally:
            seen.append("stopped")

    config = config_for(tmp_path, SURE, upstream="", policy=RACED)
    router = NeedleRouter(app, config)
    async with serving(router, lifespan="off") as url:
        running = Running(url, router, None, tmp_path)
        await router.start()
        await until(lambda: router.services.engine.health().state is EngineState.READY)
        assert route(await post(running)) == ("local", "confident")
        assert seen == ["asked", "stopped"]
        await router.stop()


async def test_a_tool_in_shadow_is_compared_with_what_the_race_relayed(tmp_path):
    call = {"id": "call_u", "type": "function", "function": {"name": "set_light", "arguments": '{"room":"kitchen"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    given = answer(200, json.dumps(body).encode(), JSON)
    policy = [*RACED[:2], {"kind": "shadow", "tools": ["set_*"]}, RACED[2]]
    # What the engine remembers it says before the upstream is even asked.
    known = {"policy": policy, "engine": {"cache_entries": 1}}
    async with recording(given) as upstream, racing(tmp_path, SURE, upstream.base_url, **known) as router:
        await post(router, **{"x-needle-mode": "shadow"})
        await until(lambda: router.totals["upstream"]["requests"])
        assert route(await post(router)) == ("upstream", "shadow-policy")
        await until(lambda: router.totals["upstream"]["requests"] == 2)
        assert len(upstream.requests) == 2
    (_, record) = records(tmp_path)
    assert (record.raced, record.comparison, record.tools_called) == (True, "arguments-differ", ("set_light",))


async def test_twelve_races_at_once_answer_each_client_and_leave_no_upstream_behind(tmp_path):
    silent = Silent()
    async with (
        recording(silent) as upstream,
        racing(tmp_path, SURE, upstream.base_url, engine=PATIENT) as router,
        httpx.AsyncClient(timeout=60) as http,
    ):
        sent = [http.post(f"{router.url}/v1/chat/completions", json=ask(user=str(number))) for number in range(12)]
        assert {route(answered) for answered in await asyncio.gather(*sent)} == {("local", "confident")}
        await until(lambda: upstream.ended == upstream.opened)
        assert router.totals["races"]["local"] == 12
        assert len(upstream.requests) <= 12
