"""`upstream.include_usage` through the whole router: counted here, unnoticed by the client."""

import json

import pytest
from tests.router.support import KITCHEN, ask, envelope
from tests.servers import answer, request, until
from tests.servers import ask as send
from tests.transparency.support import whole_router

pytestmark = pytest.mark.anyio

WORDS = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}],"usage":null}\n\n'
STOP = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}\n\n'
USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":40,"completion_tokens":6,"total_tokens":46}}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
EVENTS = WORDS + STOP + USAGE + DONE
WITHOUT_TOOLS = (
    b'{"model": "big",  "messages": [{"role": "user", "content": "\\u00e9"}], "seed": 1234567890123456789012'
)


def counted(whole):
    totals = whole.router.services.totals.as_dict()["upstream"]
    return totals["prompt_tokens"], totals["completion_tokens"]


def chat(body, *headers):
    return request(b"POST", b"/v1/chat/completions", JSON, *headers, body=body)


async def test_a_stream_is_asked_for_its_usage_and_the_client_sees_none_of_it(tmp_path):
    body = WITHOUT_TOOLS + b', "stream": true}'
    async with whole_router(tmp_path, answer(200, EVENTS, STREAM), include_usage=True) as whole:
        got = await send(whole.url, chat(body, (b"accept-encoding", b"gzip")))
        [seen] = whole.upstream.requests
        await until(lambda: counted(whole) == (40, 6))
    edited = body[:-1] + b',"stream_options":{"include_usage":true}}'
    assert seen.body == edited
    assert seen.values(b"content-length") == [b"%d" % len(edited)]
    assert seen.values(b"accept-encoding") == [b"identity"]
    assert (got.status, got.body, got.clean) == (200, WORDS + STOP + DONE, True)
    assert got.values(b"content-length") == []


@pytest.mark.parametrize(
    ("tail", "include"),
    [
        pytest.param(
            b', "stream": true, "stream_options": {"include_usage": true}}', True, id="the client asked itself"
        ),
        pytest.param(b', "stream": false}', True, id="no stream"),
        pytest.param(b', "stream": true}', False, id="off, as by default"),
        pytest.param(b', "stream": true, "stream": true}', True, id="two readings"),
    ],
)
async def test_every_other_request_and_answer_stays_as_it_is(tmp_path, tail, include):
    body = WITHOUT_TOOLS + tail
    async with whole_router(tmp_path, answer(200, EVENTS, STREAM), include_usage=include) as whole:
        got = await send(whole.url, chat(body, (b"accept-encoding", b"gzip")))
        [seen] = whole.upstream.requests
    assert (seen.body, seen.values(b"accept-encoding")) == (body, [b"gzip"])
    assert (got.body, got.values(b"content-length")) == (EVENTS, [b"%d" % len(EVENTS)])


async def test_an_upstream_that_refuses_the_option_is_heard(tmp_path):
    refused = b'{"error": {"message": "Unrecognized request argument supplied: stream_options"}}'
    async with whole_router(tmp_path, answer(400, refused, JSON), include_usage=True) as whole:
        got = await send(whole.url, chat(b'{"messages":[{"role":"user","content":"x"}],"stream":true}'))
    assert (got.status, got.body) == (400, refused)


async def test_a_stream_that_breaks_off_still_says_so(tmp_path):
    async def cut(_, peer):
        await peer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await peer.write(b"%x\r\n%b\r\n" % (len(WORDS) + 20, WORDS + STOP[:20]))
        peer.close()

    async with whole_router(tmp_path, cut, include_usage=True) as whole:
        got = await send(whole.url, chat(b'{"messages":[{"role":"user","content":"x"}],"stream":true}'))
    assert not got.clean
    assert got.body.startswith(WORDS + STOP[:20] + b"\n\ndata: ")
    assert b'"code":"upstream_disconnected"' in got.body
    assert b"[DONE]" not in got.body


async def test_a_merged_stream_counts_the_upstreams_usage_and_shows_none(tmp_path):
    turn = json.dumps(ask("turn on the kitchen light and tell me a joke", stream=True)).encode()
    script = {"envelopes": [envelope(KITCHEN)]}
    async with whole_router(tmp_path, answer(200, EVENTS, STREAM), script=script, include_usage=True) as whole:
        got = await send(whole.url, chat(turn))
        [seen] = whole.upstream.requests
        await until(lambda: counted(whole) == (40, 6))
    assert got.values(b"x-needle-route") == [b"merged"]
    assert json.loads(seen.body)["stream_options"] == {"include_usage": True}
    assert b'"prompt_tokens"' not in got.body
