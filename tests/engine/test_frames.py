import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needle_router.engine.frames import FrameDecoder, FrameError, FrameTooLarge, encode, read_frames, write_frame

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)
messages = st.lists(st.dictionaries(st.text("xyz", max_size=3), values, max_size=3), min_size=1, max_size=4)


@given(messages, st.data())
def test_messages_arrive_whole_however_their_bytes_are_cut(sent, data):
    stream = b"".join(encode(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder, received = FrameDecoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == sent


def test_single_bytes_make_a_message_only_with_the_last_one():
    frame, decoder = encode({"a": 1}), FrameDecoder()
    assert [list(decoder.feed(frame[i : i + 1])) for i in range(len(frame))] == [[]] * (len(frame) - 1) + [[{"a": 1}]]


def test_a_frame_has_a_four_byte_big_endian_length():
    assert encode({"a": 1}) == b'\x00\x00\x00\x07{"a":1}'


def test_a_payload_at_the_limit_passes_and_one_byte_more_does_not():
    assert encode({"a": 1}, limit_bytes=7)
    with pytest.raises(FrameTooLarge, match="8 bytes is over the limit of 7"):
        encode({"a": 10}, limit_bytes=7)


def test_a_length_over_the_limit_is_refused_before_its_payload_is_awaited():
    with pytest.raises(FrameTooLarge):
        list(FrameDecoder(limit_bytes=7).feed(b"\x00\x00\x00\x08"))


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x00\x00\x00\x03abc", id="no JSON"),
        pytest.param(b"\x00\x00\x00\x02[]", id="no object"),
        pytest.param(b"\x00\x00\x00\x00", id="nothing"),
        pytest.param(b"\x00\x00\x00\x02\xff\xfe", id="no UTF-8"),
    ],
)
def test_what_is_no_json_object_is_an_error(payload):
    with pytest.raises(FrameError):
        list(FrameDecoder().feed(payload))


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"text": "\ud800"}, id="lone surrogate"),
        pytest.param({"n": 2**64}, id="integer beyond 64 bits"),
    ],
)
def test_what_json_cannot_hold_is_refused_when_it_is_sent(message):
    with pytest.raises(FrameError):
        encode(message)


def test_a_frame_larger_than_the_pipe_arrives_through_partial_writes_and_reads():
    reader, writer = os.pipe()
    message = {"text": "x" * 1_000_000}

    def send():
        write_frame(writer, encode(message))
        os.close(writer)

    thread = threading.Thread(target=send)
    thread.start()
    assert list(read_frames(reader)) == [message]
    thread.join()
    os.close(reader)
