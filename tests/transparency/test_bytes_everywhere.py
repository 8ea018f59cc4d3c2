"""Whatever is sent arrives, and whatever is answered comes back: random exchanges through the whole router.

Documented differences, and no others: Host, Via, the framing and hop-by-hop fields, `x-needle-*`, and an `x-request-id`
where the upstream gave none. Field names, whose case means nothing, arrive in lower case.
"""

from __future__ import annotations

import gzip
import json
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.servers import answer, ask, request
from tests.transparency.support import end_to_end, stepped, whole_router

from needle_router.admin import ENDPOINTS

bounded = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))

# ------------------------------------------------------------------------------------------------------- requests

METHODS = b"GET HEAD POST PUT PATCH DELETE OPTIONS PROPFIND REPORT SEARCH PURGE LOCK".split()
PCHAR = b"ABCXYZabcxyz0189-._~!$&'()*+,;=:@"
ESCAPES = [b"%2F", b"%2f", b"%20", b"%C3%A9", b"%25", b"%7E", b"%ff", b"%01"]
segments = st.lists(st.one_of(st.sampled_from([bytes([c]) for c in PCHAR]), st.sampled_from(ESCAPES)), max_size=12).map(
    b"".join
)


def plain(path: bytes) -> bool:
    """Whether the router documents that it passes the path on."""
    dotted = re.split(rb"/|%2[fF]", path)
    return not (b"//" in path or b"." in dotted or b".." in dotted or path.startswith((b"/@", b"/%40")))


paths = st.builds(
    lambda start, parts: start + b"/".join(parts),
    st.sampled_from([b"/", b"/v1/", b"/v1/files/", b"/v1/chat/completions/", b"/api/x/"]),
    st.lists(segments, max_size=4),
).filter(lambda path: plain(path) and path.decode() not in ENDPOINTS)
queries = st.one_of(
    st.none(),
    st.lists(st.integers(0x21, 0x7E).filter(lambda c: c != 0x23), min_size=1, max_size=40).map(bytes),
)
targets = st.builds(lambda path, query: path if query is None else path + b"?" + query, paths, queries)

TCHAR = b"abcdefghijklmnopqrstuvwxyzABCXYZ0123456789!#$%&'*+-.^_`|~"
KNOWN = b"Accept Accept-Encoding Authorization api-key Cookie User-Agent OpenAI-Beta Idempotency-Key".split()
KNOWN += b"X-Request-Id X-Forwarded-For Forwarded Range If-None-Match traceparent Cache-Control".split()
names = st.one_of(
    st.sampled_from(KNOWN),
    st.lists(st.sampled_from(list(TCHAR)), min_size=1, max_size=12).map(lambda codes: b"x-t-" + bytes(codes)),
)
#: Any visible byte, obs-text included; blanks and tabs inside.
values = (
    st.lists(st.integers(0x20, 0xFF).filter(lambda c: c != 0x7F) | st.just(9), max_size=30)
    .map(bytes)
    .map(lambda value: value.strip(b" \t"))
)
fields = st.lists(st.tuples(names, values), max_size=10).flatmap(
    lambda pairs: (
        st.lists(st.sampled_from(pairs), max_size=2).map(lambda again: pairs + again) if pairs else st.just([])
    )
)

JSON_LIKE = [
    b'{"model":"big","messages":[{"role":"user","content":"hi"}]}',
    b'{"model":"big","model":"small","messages":[]}',
    b'{"seed":123456789012345678901234,"a":1.0,"b":NaN}',
    b'\xef\xbb\xbf{"model": "x"}',
    '{"model":"é\\ud800"}'.encode("utf-16"),
    b"[" * 2000,
    b'{"stream": true, "messages": "x", "tools": {}}\r\n\r\n',
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
jsons = st.builds(
    lambda value, indent: json.dumps(value, indent=indent).encode(), json_values, st.sampled_from([None, 1])
)
raw_bodies = st.one_of(st.just(b""), st.binary(max_size=300), st.sampled_from(JSON_LIKE), jsons)
bodies = st.one_of(raw_bodies, raw_bodies.map(lambda body: body * 700))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces; places beyond its end count modulo its length."""
    ends = sorted({place % len(data) for place in places} - {0}) if data else []
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def framed(head: bytes, body: bytes | None, framing: str, cuts: list[int]) -> bytes:
    """A message with its body framed."""
    if body is None:
        return head + b"\r\n"
    if framing == "chunked":
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in cut(body, cuts) if piece)
        return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return head + (b"content-length: %d\r\n\r\n" % len(body) if framing == "length" else b"\r\n") + body


def lines(pairs) -> bytes:
    """Field lines."""
    return b"".join(b"%b: %b\r\n" % pair for pair in pairs)


places = st.lists(st.integers(0, 5000), max_size=8)
HELLO = [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"]


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    with stepped(tmp_path_factory.mktemp("router")) as everything:
        yield everything


@bounded
@given(
    method=st.sampled_from(METHODS),
    target=targets,
    headers=fields,
    body=st.none() | bodies,
    framing=st.sampled_from(["length", "chunked"]),
    cuts=places,
    packets=places,
)
def test_any_request_arrives_as_it_was_sent(loop, method, target, headers, body, framing, cuts, packets):
    loop.plan.pieces, loop.plan.close = HELLO, False
    head = b"%b %b HTTP/1.1\r\nhost: router.test\r\n%b" % (method, target, lines(headers))
    if method == b"HEAD":
        loop.plan.pieces = [HELLO[0].removesuffix(b"{}")]
    seen, got = loop.exchange(cut(framed(head, body, framing, cuts), packets), method)
    assert (got.status, got.clean) == (200, True)
    assert (seen.method, seen.target, seen.body) == (method, target, body or b"")
    assert end_to_end(seen.headers, b"host", b"via") == [(name.lower(), value) for name, value in headers]
    assert seen.values(b"host") == [loop.whole.upstream.base_url.removeprefix("http://").encode()]
    if body is None or framing == "length":
        assert seen.values(b"content-length") == ([] if body is None else [b"%d" % len(body)])
        assert seen.values(b"transfer-encoding") == []


@bounded
@given(
    body=bodies,
    encoding=st.sampled_from([None, b"identity", b"gzip", b"GZIP", b"br", b"zstd", b"deflate, gzip", b"x-own"]),
    kind=st.sampled_from([None, b"application/json", b"application/json; charset=utf-8", b"text/plain", b"a/b+json"]),
    framing=st.sampled_from(["length", "chunked"]),
    cuts=places,
    packets=places,
)
@example(
    body=gzip.compress(JSON_LIKE[0]), encoding=b"gzip", kind=b"application/json", framing="length", cuts=[], packets=[]
)
def test_any_body_of_a_chat_completion_arrives_as_it_was_sent(loop, body, encoding, kind, framing, cuts, packets):
    loop.plan.pieces, loop.plan.close = HELLO, False
    headers = [(b"content-type", kind)] if kind else []
    headers += [(b"content-encoding", encoding)] if encoding else []
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: router.test\r\n" + lines(headers)
    seen, got = loop.exchange(cut(framed(head, body, framing, cuts), packets), b"POST")
    assert (got.status, got.body, got.values(b"x-needle-route")) == (200, b"{}", [b"upstream"])
    assert seen.body == body
    assert end_to_end(seen.headers, b"host", b"via") == headers


# -------------------------------------------------------------------------------------------------------- answers

ANSWERED = (
    b"Content-Type Set-Cookie Server Date Location Retry-After x-request-id X-RateLimit-Reset-Tokens ETag".split()
)
answer_fields = st.lists(st.tuples(st.sampled_from(ANSWERED) | names, values), max_size=10)
EVENTS = [
    b'data: {"choices":[{"delta":{"content":"\xc3\xa9"}}]}\n\n',
    b'data: {"usage":{"prompt_tokens":3,"completion_tokens":2}}\r\n\r\n',
    b": ping\n\n",
    b"event: error\rdata: \xff\xfe\r\r",
    b"\xef\xbb\xbfdata:\n\n",
    b"data: [DONE]\n\n",
    b"id: 1\ndata: x\ndata: y\n",
    b"\x00no event at all",
]
streams = st.lists(st.sampled_from(EVENTS) | st.binary(max_size=20), max_size=12).map(b"".join)


@bounded
@given(
    method=st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS"]),
    target=st.sampled_from([b"/v1/chat/completions", b"/v1/responses", b"/v1/files/f/content"]),
    status=st.integers(200, 599),
    headers=answer_fields,
    body=bodies | streams,
    framing=st.sampled_from(["length", "chunked", "close"]),
    kind=st.sampled_from([b"text/event-stream", b"application/json", b"text/html", b"audio/mpeg"]),
    interim=st.booleans(),
    cuts=places,
    packets=places,
)
def test_any_answer_comes_back_as_it_was_given(
    loop, method, target, status, headers, body, framing, kind, interim, cuts, packets
):
    headers = [(b"content-type", kind), *headers]
    head = b"HTTP/1.1 %d Some Words\r\n%b" % (status, lines(headers))
    bodiless = method == b"HEAD" or status in (204, 304)
    message = framed(head, None if bodiless else body, framing, cuts)
    message = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + message if interim else message
    loop.plan.pieces, loop.plan.close = cut(message, packets), framing == "close" and not bodiless
    seen, got = loop.exchange(
        [b"%b %b HTTP/1.1\r\nhost: router.test\r\ncontent-length: 0\r\n\r\n" % (method, target)], method
    )
    assert (seen.method, seen.target) == (method, target)
    assert (got.status, got.clean, got.body) == (status, True, b"" if bodiless else body)
    own = [value for name, value in headers if name.lower() == b"x-request-id"]
    assert end_to_end(got.headers, b"x-request-id") == [
        (name.lower(), value) for name, value in headers if name.lower() != b"x-request-id"
    ]
    assert got.values(b"x-request-id") == own if own else len(got.values(b"x-request-id")) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/files"])
@pytest.mark.parametrize(
    "own", [[b"req_1"], [b""], [b"", b"req_2"]], ids=["the upstream's", "an empty one", "an empty one first"]
)
async def test_a_request_id_of_the_upstream_stays_as_it_is_be_it_empty(tmp_path, path, own):
    fields = [(b"X-Request-Id", value) for value in own]
    async with whole_router(tmp_path, answer(200, b"{}", *fields)) as whole:
        got = await ask(whole.url, request(b"POST", path, body=b'{"messages":[]}'))
    assert got.values(b"x-request-id") == own


@pytest.mark.anyio
async def test_where_the_upstream_gave_no_request_id_there_is_one_of_the_routers(tmp_path):
    async with whole_router(tmp_path, answer()) as whole:
        got = await ask(whole.url, request(b"GET", b"/v1/files"))
    [identifier] = got.values(b"x-request-id")
    assert identifier.startswith(b"req_")
