"""Bodies that are odd, hostile or encoded go on as they are, whatever the engine would say (cases 37 to 39 and 44)."""

from __future__ import annotations

import gzip
import json

import orjson
import pytest
from tests.router.support import KITCHEN, LIGHT, TEXT, WEATHER, envelope
from tests.router.support import ask as chat
from tests.servers import answer, ask, recording, request
from tests.transparency.support import whole_router

pytestmark = pytest.mark.anyio
SURE = {"envelopes": [envelope(KITCHEN)]}
PLAIN = orjson.dumps(chat())
JSON = (b"content-type", b"application/json")


def posting(body: bytes, *headers) -> bytes:
    """A chat completion with these very bytes."""
    return request(b"POST", b"/v1/chat/completions", JSON, *headers, body=body)


def with_field(text: bytes) -> bytes:
    """The plain request with one more member at its end."""
    return PLAIN[:-1] + b"," + text + b"}"


async def forwarded(folder, body, *headers, script=SURE):
    """The reason for which `body` went on unchanged."""
    async with whole_router(folder, answer(200, b'{"from": "upstream"}'), script=script) as whole:
        got = await ask(whole.url, posting(body, *headers))
        assert (got.status, got.body) == (200, b'{"from": "upstream"}')
        assert [seen.body for seen in whole.upstream.requests] == [body]
        return got.values(b"x-needle-reason")[0].decode()


async def test_the_plain_request_would_have_been_answered_here(tmp_path):
    async with whole_router(tmp_path, script=SURE) as whole:
        got = await ask(whole.url, posting(PLAIN))
    assert got.values(b"x-needle-route") == [b"local"]


UNREADABLE = {
    "NaN": with_field(b'"a":NaN'),
    "Infinity": with_field(b'"a":-Infinity'),
    "a number beyond every double": with_field(b'"a":1e999'),
    "model twice": with_field(b'"model":"other"'),
    "tools twice": with_field(b'"tools":[]'),
    "stream twice": with_field(b'"stream":true,"stream":false'),
    "messages twice, once with escapes": with_field(b'"m\\u0065ssages":[]'),
    "lone surrogate": with_field(b'"a":"\\ud800"'),
    "invalid UTF-8": with_field(b'"a":"\xff"'),
    "byte order mark": b"\xef\xbb\xbf" + PLAIN,
    "UTF-16": PLAIN.decode().encode("utf-16"),
    "trailing junk": PLAIN + b" x",
    "empty": b"",
    "a list": b"[" + PLAIN + b"]",
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_reliability_37_json_with_two_readings_goes_on_unparsed(tmp_path, body):
    assert await forwarded(tmp_path, body) == "unparsed"


async def test_reliability_37_numbers_that_no_double_holds_go_on_digit_by_digit(tmp_path):
    unsure = {"envelopes": [envelope(KITCHEN, confidence=0.1)]}
    body = with_field(b'"seed":123456789012345678901234567890,"x":1.10')
    assert await forwarded(tmp_path, body, script=unsure) == "below-threshold"


def tool(name: str, parameters) -> dict:
    """A function tool."""
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def having(parameters) -> bytes:
    """The plain request where the tool that would be called has these parameters."""
    light = {"type": "function", "function": {**LIGHT["function"], "parameters": parameters}}
    return json.dumps(chat(tools=[light, WEATHER])).encode()


def beside(*tools) -> bytes:
    """The plain request with more tools."""
    return json.dumps(chat(tools=[LIGHT, *tools])).encode()


def properties(room) -> dict:
    """Parameters whose `room` has this schema."""
    return {"type": "object", "properties": {"room": room, "on": {"type": "boolean"}}}


NOWHERE = "http://127.0.0.1:REF/x.json"
HOSTILE = {
    "depth 1025": with_field(b'"a":' + b"[" * 1025 + b"]" * 1025),
    "depth 100000": with_field(b'"a":' + b"[" * 100_000 + b"]" * 100_000),
    "ten thousand tools": beside(*(tool(f"tool_{n}", {"type": "object"}) for n in range(10_000))),
    "a schema of five megabytes": having(properties({"type": "string", "description": "x" * 5_000_000})),
    "a text of ten megabytes": json.dumps(chat(TEXT + " x" * 5_000_000)).encode(),
    "a schema that refers to itself": having(properties({"$ref": "#"})),
    "a schema that refers to a server": having(properties({"$ref": NOWHERE})),
    "a schema that refers to a file": having(properties({"$ref": "file:///etc/passwd"})),
    "an empty name": beside(tool("", {"type": "object"})),
    "a name of 10000 characters": beside(tool("n" * 10_000, {"type": "object"})),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_reliability_38_hostile_sizes_shapes_and_names_go_on_and_fetch_nothing(tmp_path, body):
    async with recording() as elsewhere:
        body = body.replace(b"REF", elsewhere.base_url.rpartition(":")[2].encode())
        reason = await forwarded(tmp_path, body)
        assert elsewhere.opened == 0
    assert reason not in ("confident", "internal-error")


HARMLESS = {
    "a name with a line break": beside(tool("a\r\nx-evil: 1", {"type": "object"})),
    "a name with a quote": beside(tool('a"b', {"type": "object"})),
    "a name from right to left": beside(tool("\u202eabc\U0001f600", {"type": "object"})),
    "a list of a million elements": with_field(b'"metadata":{"a":[' + b"1," * 999_999 + b"1]}"),
    "a pattern that explodes elsewhere": having(properties({"type": "string", "pattern": "^([a-z]+)+$"})),
    "__proto__": with_field(b'"__proto__":{"x":1}'),
    "a $schema on a server": having({"$schema": NOWHERE, **properties({"type": "string"})}),
}


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS)
async def test_reliability_38_what_is_only_large_or_odd_does_no_harm(tmp_path, body):
    async with recording() as elsewhere, whole_router(tmp_path, script=SURE) as whole:
        body = body.replace(b"REF", elsewhere.base_url.rpartition(":")[2].encode())
        got = await ask(whole.url, posting(body))
        assert got.status == 200
        assert [seen.body for seen in whole.upstream.requests] in ([], [body])
        assert elsewhere.opened == 0
        assert got.values(b"x-evil") == []
        assert (await ask(whole.url, request(b"GET", b"/healthz"))).status == 200


TYPES = {
    "tools is an object": {"tools": {}},
    "messages is a text": {"messages": "turn on the kitchen light"},
    "five answers": {"n": 5},
    "stream is a text": {"stream": "yes"},
    "an image": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {"url": "x"}}],
            }
        ]
    },
    "a sound": {
        "messages": [
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}
        ]
    },
    "an unknown tool choice": {"tool_choice": "perhaps"},
    "a tool choice of another type": {"tool_choice": 7},
    "a response format of another kind": {"response_format": {"type": "grammar"}},
    "a response format that is a text": {"response_format": "json"},
    "a custom tool": {"tools": [LIGHT, {"type": "custom", "custom": {"name": "free"}}]},
}


@pytest.mark.parametrize("fields", TYPES.values(), ids=TYPES)
async def test_reliability_39_wrong_types_are_the_upstreams_to_judge(tmp_path, fields):
    assert await forwarded(tmp_path, orjson.dumps(chat(**fields))) not in ("confident", "internal-error")


async def test_reliability_39_two_calls_where_one_is_allowed_go_on(tmp_path):
    two = {"envelopes": [envelope(KITCHEN, {"name": "get_weather", "arguments": {"city": "Oslo"}})]}
    body = orjson.dumps(chat(f"{TEXT} and tell me the weather in Oslo", parallel_tool_calls=False))
    assert await forwarded(tmp_path, body, script=two) not in ("confident", "internal-error")


ENCODED = {
    "gzip": (b"gzip", gzip.compress(PLAIN)),
    "a bomb of fifty megabytes": (b"gzip", gzip.compress(bytes(50_000_000))),
    "gzip that is none": (b"gzip", PLAIN),
    "zstd": (b"zstd", b"\x28\xb5\x2f\xfd"),
    "twice": (b"gzip, br", b"\x1f\x8b"),
}


@pytest.mark.parametrize(("encoding", "body"), ENCODED.values(), ids=ENCODED)
async def test_reliability_44_encoded_bodies_go_on_packed(tmp_path, encoding, body):
    assert await forwarded(tmp_path, body, (b"content-encoding", encoding)) == "encoded-body"
