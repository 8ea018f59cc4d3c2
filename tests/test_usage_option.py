"""Usage that the router asks for by itself: put into the request with one edit, left out of the stream."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needle_router.usage_option import MAX_HELD_BYTES, UsageHider, is_usage_only, with_usage

OPTION = b'"stream_options":{"include_usage":true}'


@pytest.mark.parametrize(
    ("raw", "edited"),
    [
        pytest.param(b'{"stream":true}', b'{"stream":true,%b}' % OPTION, id="absent"),
        pytest.param(b'{"stream": true\n}\n', b'{"stream": true\n,%b}\n' % OPTION, id="blanks stay where they are"),
        pytest.param(
            b'{"stream_options": null, "stream":true}',
            b'{"stream_options": {"include_usage":true}, "stream":true}',
            id="null",
        ),
        pytest.param(b'{"stream_options":{}}', b'{"stream_options":{"include_usage":true}}', id="empty"),
        pytest.param(b'{"stream_options":{ }}', b'{"stream_options":{"include_usage":true }}', id="a blank in it"),
        pytest.param(
            b'{"a":[1,{"b":2}],"stream_options":{"include_obfuscation":false},"z":1}',
            b'{"a":[1,{"b":2}],"stream_options":{"include_usage":true,"include_obfuscation":false},"z":1}',
            id="beside another option",
        ),
        pytest.param(
            b'{"stream_options":{"x":1,"include_usage" : false }}',
            b'{"stream_options":{"x":1,"include_usage" : true }}',
            id="false",
        ),
        pytest.param(
            b'{"stream\\u005foptions":{"include_usage":null}}',
            b'{"stream\\u005foptions":{"include_usage":true}}',
            id="a key with an escape",
        ),
        pytest.param(
            b'{"m":"\\"stream_options\\":{}","tools":{"stream_options":{}}}',
            b'{"m":"\\"stream_options\\":{}","tools":{"stream_options":{}},%b}' % OPTION,
            id="the same words elsewhere",
        ),
        pytest.param(
            b'{"seed":12345678901234567890123,"t":1e999}',
            b'{"seed":12345678901234567890123,"t":1e999,%b}' % OPTION,
            id="numbers that no double holds",
        ),
        pytest.param(
            b'{"stream_options":"odd","x":"}"}',
            b'{"stream_options":{"include_usage":true},"x":"}"}',
            id="a value of another type",
        ),
    ],
)
def test_the_option_is_put_in_with_one_edit(raw, edited):
    assert with_usage(raw) == edited


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
OPTIONS = st.none() | st.dictionaries(
    st.sampled_from(["include_usage", "include_obfuscation", "é\\"]), JSON, max_size=3
)


@given(
    before=st.dictionaries(st.text(), JSON, max_size=3),
    options=OPTIONS,
    given_options=st.booleans(),
    after=st.dictionaries(st.text(), JSON, max_size=3),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_any_request_keeps_its_other_members(before, options, given_options, after, ascii_only, indent):
    body = {"stream": True, **before}
    body.pop("stream_options", None)
    if given_options:
        body["stream_options"] = options
    body |= {key: value for key, value in after.items() if key not in body}
    raw = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    edited = with_usage(raw)
    read = json.loads(edited.decode("utf-8", "surrogatepass"))
    assert read == {**body, "stream_options": {**(body.get("stream_options") or {}), "include_usage": True}}
    assert list(read) == [*body] if given_options else [*body, "stream_options"]


WORDS = b'data: {"choices":[{"delta":{"content":"hi"}}],"usage":null}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
AZURE = b'data: {"choices":[],"prompt_filter_results":[],"usage":null}\n\n'
IN_THE_LAST = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5}}\n\n'
COMMENT = b": keep-alive\n\n"
SPLIT = b'event: x\ndata: {"choices":[],\ndata: "usage":{"prompt_tokens":5}}\nid: 7\n\n'
COMMENTED = b': so many\ndata:{"usage":{"prompt_tokens":5},"choices":[ ]}\n\n'


def hidden(stream, size=None):
    hider = UsageHider()
    cut = size or len(stream) or 1
    return b"".join(hider.feed(stream[i : i + cut]) for i in range(0, len(stream), cut)) + hider.finish()


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, None])
@pytest.mark.parametrize(
    ("stream", "shown"),
    [
        pytest.param(WORDS + USAGE + DONE, WORDS + DONE, id="the usual stream"),
        pytest.param(AZURE + WORDS + DONE, AZURE + WORDS + DONE, id="no choices, but no usage either"),
        pytest.param(WORDS + IN_THE_LAST + DONE, WORDS + IN_THE_LAST + DONE, id="usage beside a choice"),
        pytest.param(COMMENT + WORDS + COMMENT + USAGE + DONE, COMMENT + WORDS + COMMENT + DONE, id="comments"),
        pytest.param(WORDS + SPLIT + DONE, WORDS + DONE, id="data in two lines"),
        pytest.param(WORDS + COMMENTED + DONE, WORDS + DONE, id="a comment inside, no blank after the colon"),
        pytest.param(WORDS + USAGE, WORDS, id="no DONE"),
        pytest.param(WORDS + USAGE[:-1], WORDS, id="no empty line at the end"),
        pytest.param(WORDS + DONE[:-2], WORDS + DONE[:-2], id="cut in the middle"),
        pytest.param(b'data: {nonsense "usage" }\n\n' + WORDS, b'data: {nonsense "usage" }\n\n' + WORDS, id="no JSON"),
        pytest.param(b"\n\n\n" + WORDS, b"\n\n\n" + WORDS, id="empty lines"),
        pytest.param(b"", b"", id="nothing"),
    ],
)
def test_only_the_chunk_with_nothing_but_usage_is_left_out(stream, shown, size, line_end):
    assert hidden(stream.replace(b"\n", line_end), size) == shown.replace(b"\n", line_end)


@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data: x", b": c", b"\xff", b"usage"])), st.integers(1, 5))
def test_whatever_is_no_usage_passes_byte_for_byte(parts, size):
    stream = b"".join(parts)
    assert hidden(stream, size) == stream


def test_an_event_comes_with_the_piece_that_ends_it():
    hider = UsageHider()
    assert [hider.feed(WORDS[:20]), hider.feed(WORDS[20:]), hider.feed(DONE)] == [b"", WORDS, DONE]


def test_the_last_byte_of_a_line_end_is_not_kept_for_the_next_event():
    hider = UsageHider()
    assert [hider.feed(b"data: a\r\n\r"), hider.feed(b"\n"), hider.finish()] == [b"data: a\r\n\r", b"\n", b""]


def test_of_an_event_that_is_left_out_the_whole_line_end_is():
    hider = UsageHider()
    crlf = USAGE.replace(b"\n", b"\r\n")
    assert [hider.feed(crlf[:-1]), hider.feed(crlf[-1:]), hider.feed(DONE)] == [b"", b"", DONE]


def test_a_long_event_passes_while_it_comes_and_the_next_ones_are_looked_at_again():
    hider = UsageHider()
    long = b"data: " + b"x" * (MAX_HELD_BYTES + 1)
    assert len(hider.feed(long)) == len(long) - 3
    assert hider.feed(b"y" * 10) == b"xxx" + b"y" * 7
    assert hider.feed(b"\n\n" + USAGE + DONE) == b"yyy\n\n" + DONE


def test_a_usage_event_is_one_without_choices():
    assert is_usage_only(USAGE)
    assert not is_usage_only(IN_THE_LAST)
    assert not is_usage_only(b'data: {"usage":{"prompt_tokens":5}}\n\n')
