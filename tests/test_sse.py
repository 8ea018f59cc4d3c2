"""Events are the same however the bytes were cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needle_router.sse import EventSplitter, EventTooLong


def events(*chunks: bytes) -> list[bytes]:
    splitter = EventSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [b"a", b"b"], id="LF"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"], id="CRLF"),
        pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="CR"),
        pytest.param(b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"], id="mixed"),
        pytest.param(b"data:a\n\n", [b"a"], id="no space"),
        pytest.param(b"data:  a\n\n", [b" a"], id="only one space goes"),
        pytest.param(b"data: a\ndata: b\n\n", [b"a\nb"], id="several data lines"),
        pytest.param(b": comment\n\nevent: x\nid: 7\nretry: 3\ndata: a\n\n", [b"a"], id="comments and other fields"),
        pytest.param(b"data:\n\ndata\n\n", [b"", b""], id="empty data"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [b"a"], id="byte order mark"),
        pytest.param(b"data: \xff\n\n", [b"\xff"], id="not UTF-8"),
        pytest.param(b"data: a\n\ndata: cut", [b"a"], id="an unfinished event is none"),
    ],
)
def test_the_event_stream_rules(stream, expected):
    assert events(stream) == expected


line = st.sampled_from([b"data: a", b"data:b", b"data", b": c", b"event: e", b"data: \xc3\xa9", b"", b""])
ending = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(st.lists(st.tuples(line, ending), max_size=20), st.lists(st.integers(1, 5), max_size=80))
def test_any_cutting_gives_the_same_events(lines, sizes):
    stream = b"".join(text + end for text, end in lines)
    pieces, position = [], 0
    for size in sizes:
        pieces.append(stream[position : position + size])
        position += size
    pieces.append(stream[position:])
    assert events(*pieces) == events(stream)


def test_an_event_over_the_cap_is_refused_at_once():
    splitter = EventSplitter(max_event_bytes=100)
    assert list(splitter.feed(b"data: " + b"x" * 60)) == []
    with pytest.raises(EventTooLong, match="100 bytes"):
        list(splitter.feed(b"data: " + b"x" * 60))
    assert list(EventSplitter(max_event_bytes=100).feed(b"data: " + b"x" * 90 + b"\n\n")) == [b"x" * 90]
