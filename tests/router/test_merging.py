"""Merged answers that do not go well: clients that leave, upstreams that break, and what is noted of both."""

import asyncio
import contextlib
import json

import pytest
from tests.router.support import HEAD, KITCHEN, TEXT, Running, ask, config_for, envelope
from tests.servers import answer, connected, recording, request, serving, until

from needle_router import NeedleRouter, create_app
from needle_router.engine.base import EngineState
from needle_router.ledger import read_ledger

pytestmark = pytest.mark.anyio
SURE = {"envelopes": [envelope(KITCHEN, confidence=0.97)]}
MIXED = f"{TEXT} and tell me a joke"
JSON = (b"content-type", b"application/json")
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}
#: At 2 and 8 USD per million tokens.
USAGE_USD = 0.000128


def raw(**fields):
    return request(b"POST", b"/v1/chat/completions", JSON, body=json.dumps(ask(MIXED, **fields)).encode())


def event(delta, finish=None, **fields):
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk = {**HEAD, "object": "chat.completion.chunk", "choices": choices, **fields}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def words_of(body):
    events = [line[6:] for line in body.split(b"\n\n") if line.startswith(b"data: {")]
    chunks = [json.loads(text) for text in events]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c.get("choices"))


class Held:
    """An upstream that writes `first` and waits; `left` is set when its connection is closed."""

    def __init__(self, first=b""):
        self.asked, self.left, self.first = asyncio.Event(), asyncio.Event(), first

    async def __call__(self, recorded, peer):
        if self.first:
            await peer.write(self.first)
        self.asked.set()
        await peer.gone()
        self.left.set()


@contextlib.asynccontextmanager
async def merging(folder, base_url, **sections):
    router = create_app(config_for(folder, SURE, upstream=base_url, engine={"deadline_s": 30}, **sections))
    async with serving(router, lifespan="on") as url:
        await until(lambda: router.services.engine.health().state is not EngineState.LOADING)
        yield Running(url, router, None, folder)


def records(folder):
    return list(read_ledger(folder / "decisions.db"))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_before_the_upstream_answers_ends_its_call(tmp_path, stream):
    held = Held()
    async with recording(held) as upstream, merging(tmp_path, upstream.base_url) as router:
        async with connected(router.url) as client:
            await client.write(raw(stream=stream))
            await held.asked.wait()
        await until(held.left.is_set)
        await until(lambda: router.totals["upstream"]["requests"])
        assert len(upstream.requests) == 1
    (record,) = records(tmp_path)
    assert (record.route, record.reason, record.status, record.error) == ("upstream", "merged", 0, "cut")
    assert (record.saved, record.cost_usd) == (None, None)


async def test_a_client_that_leaves_in_the_middle_of_the_words_ends_the_call(tmp_path):
    held = Held(STREAM_HEAD + chunk(event({"role": "assistant", "content": "Why"})))
    async with recording(held) as upstream, merging(tmp_path, upstream.base_url) as router:
        async with connected(router.url) as client:
            await client.write(raw(stream=True))
            assert (await client.head())[0] == 200
            seen = b""
            while b"Why" not in seen:
                seen += await client.reader.read(65536)
        assert b"set_light" in seen
        await until(held.left.is_set)
        await until(lambda: router.totals["merged"]["requests"])
        assert router.totals["local"]["requests"] == 0
    (record,) = records(tmp_path)
    assert (record.route, record.status, record.error, record.usage) == ("merged", 200, "cut", None)


async def test_a_client_that_leaves_stops_the_app_that_is_asked_for_words(tmp_path):
    """An app of the user's own, which never looks whether its client is there."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def app(scope, receive, send):
        await receive()
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            stopped.set()

    router = NeedleRouter(app, config_for(tmp_path, SURE))
    async with serving(router, lifespan="off") as url:
        await router.start()
        await until(lambda: router.services.engine.health().state is EngineState.READY)
        async with connected(url) as client:
            await client.write(raw())
            await begun.wait()
        await until(stopped.is_set)
        await until(lambda: router.services.totals.as_dict()["upstream"]["requests"])
        await router.stop()
    (record,) = records(tmp_path)
    assert (record.route, record.status, record.error) == ("upstream", 0, "cut")


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        pytest.param("reset", b"upstream_disconnected", id="the connection breaks"),
        pytest.param("end", b"upstream_disconnected", id="a clean end in the middle"),
        pytest.param("error", b"overloaded", id="an error event"),
    ],
)
async def test_calls_that_were_sent_stand_and_a_broken_stream_ends_as_an_error(tmp_path, ending, message):
    async def broken(recorded, peer):
        await peer.write(STREAM_HEAD + chunk(event({"role": "assistant", "content": "Why"}, usage=USAGE)))
        if ending == "error":
            await peer.write(chunk(b'data: {"error": {"message": "overloaded"}}\n\n') + b"0\r\n\r\n")
        elif ending == "end":
            await peer.write(b"0\r\n\r\n")
        else:
            peer.reset()

    async with recording(broken) as upstream, merging(tmp_path, upstream.base_url) as router:
        async with connected(router.url) as client:
            answered = await client.ask(raw(stream=True))
        assert not answered.clean
        assert answered.body.count(b'"name":"set_light"') == 1
        assert words_of(answered.body) in ("Why", "")
        assert message in answered.body
        assert b"[DONE]" not in answered.body
        assert b'"finish_reason":"tool_calls"' not in answered.body
        assert len(upstream.requests) == 1
    (record,) = records(tmp_path)
    assert (record.route, record.status, record.error, record.saved) == ("merged", 200, "cut", None)


@pytest.mark.parametrize("when", ["mixed", "always"])
async def test_an_answer_in_one_piece_that_breaks_off_is_an_error_or_the_calls_alone(tmp_path, when):
    async def broken(recorded, peer):
        await peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
        peer.reset()

    text = TEXT if when == "always" else MIXED
    async with recording(broken) as upstream, merging(tmp_path, upstream.base_url, merge={"when": when}) as router:
        async with connected(router.url) as client:
            sent = json.dumps(ask(text)).encode()
            answered = await client.ask(request(b"POST", b"/v1/chat/completions", JSON, body=sent))
        assert len(upstream.requests) == 1
        if when == "always":
            # The calls are the whole of the request: the client misses nothing but words it did not ask for.
            assert (answered.status, answered.values(b"x-needle-reason")) == (200, [b"confident"])
            assert router.totals["local"]["requests"] == 1
            # But the upstream had begun, and will have its tokens paid.
            assert router.totals["wasted"]["requests"] == 1
        else:
            assert (answered.status, json.loads(answered.body)["error"]["code"]) == (502, "upstream_disconnected")
            assert router.totals["local"]["requests"] == 0
    assert len(records(tmp_path)) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_usage_and_cost_of_a_merged_answer_are_the_upstream_s(tmp_path, stream):
    done = event({"role": "assistant", "content": "Why not?"}) + event({}, "stop")
    last = {**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
    events = done + b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n"
    message = {"role": "assistant", "content": "Why not?"}
    whole = {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE}
    given = answer(200, json.dumps(whole).encode(), JSON)
    if stream:
        given = answer(200, events, (b"content-type", b"text/event-stream"))
    async with recording(given) as upstream, merging(tmp_path, upstream.base_url) as router:
        async with connected(router.url) as client:
            options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
            answered = await client.ask(raw(**options))
        assert answered.values(b"x-needle-route") == [b"merged"]
        assert answered.body.count(b'"total_tokens":46') == 1
        await until(lambda: router.totals["merged"]["requests"])
        assert router.totals["upstream"]["cost_usd"] == USAGE_USD
        assert (router.totals["saved"]["prompt_tokens"], router.totals["saved"]["cost_usd"]) == (0, 0)
        assert len(upstream.requests) == 1
    (record,) = records(tmp_path)
    assert (record.usage.prompt_tokens, record.usage.completion_tokens, record.cost_usd) == (40, 6, USAGE_USD)
    assert (record.saved, record.saved_usd) == (None, None)
