"""One answer out of two: equal calls once, everything else kept, one end."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needle_router.compare import Comparison, compare, same_call
from needle_router.merge import StreamMerger, merge_json, missing_calls
from needle_router.sse import EventSplitter
from needle_router.surfaces.chat_read import answered_calls
from needle_router.turn import AnsweredCall, Call, Reply, Usage

LIGHT = AnsweredCall("call_ndl1", "set_light", '{"room":"kitchen","on":true}')
LOCAL = Reply("chatcmpl-local", 1700000000, "m", calls=(LIGHT,), finish_reason="tool_calls", usage=Usage(5, 5))


def upstream_call(identifier, name, arguments):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


SAME = upstream_call("call_up", "set_light", '{"on": true, "room": "Kitchen "}')
OTHER = upstream_call("call_up", "get_weather", '{"city":"Oslo"}')


def completion(content, *calls, **extra):
    message = {"role": "assistant", "content": content, "tool_calls": list(calls) or None, **extra}
    return {
        "id": "chatcmpl-up",
        "model": "m-2026",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46},
        "service_tier": "default",
    }


def names(body):
    return [call["function"]["name"] for call in body["choices"][0]["message"]["tool_calls"]]


def test_an_equal_call_is_kept_once_and_the_words_stay():
    body = merge_json(LOCAL, completion("A joke.", SAME))
    assert names(body) == ["set_light"]
    assert body["choices"][0]["message"]["content"] == "A joke."
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert (body["id"], body["model"]) == ("chatcmpl-local", "m")


def test_a_different_call_is_added_behind_the_local_ones():
    body = merge_json(LOCAL, completion("Let me look.", OTHER, reasoning_content="hm"))
    assert names(body) == ["set_light", "get_weather"]
    assert len({call["id"] for call in body["choices"][0]["message"]["tool_calls"]}) == 2
    assert body["choices"][0]["message"]["reasoning_content"] == "hm"
    assert body["usage"]["total_tokens"] == 46
    assert body["service_tier"] == "default"


def test_colliding_and_missing_ids_are_made_distinct():
    taken = [AnsweredCall(LIGHT.id, "a", "{}"), AnsweredCall("", "b", "{}"), AnsweredCall("", "c", "{}")]
    ids = [LIGHT.id, *(call.id for call in missing_calls((LIGHT,), taken))]
    assert len(set(ids)) == 4
    assert all(0 < len(identifier) <= 40 for identifier in ids)


@pytest.mark.parametrize(
    "body", [{}, [], None, {"choices": []}, {"error": {"message": "x"}}, {"choices": [{"delta": {}}]}]
)
def test_what_is_no_completion_is_refused(body):
    with pytest.raises(ValueError, match="not a chat completion"):
        merge_json(LOCAL, body)


def chunk(delta, finish=None, **extra):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-up",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **extra,
    }


def merged(*upstream, include_usage=False):
    merger = StreamMerger(LOCAL, include_usage=include_usage)
    stream = merger.opening()
    for item in upstream:
        stream += merger.feed(item if isinstance(item, bytes) else json.dumps(item).encode())
    assert merger.complete
    return stream + merger.close()


def read(stream):
    events = list(EventSplitter().feed(stream))
    return [json.loads(event) for event in events if event != b"[DONE]"], events


def words(chunks):
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


DELTA = {"index": 0, "id": "call_up", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":'}}
STREAM = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Let me "}),
    chunk({"tool_calls": [DELTA]}),
    chunk({"content": "look."}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]}),
    chunk({}, "tool_calls"),
    {**chunk({}), "choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}},
    b"[DONE]",
)


def test_a_merged_stream_has_one_id_one_finish_and_one_end():
    chunks, events = read(merged(*STREAM, include_usage=True))
    assert events.count(b"[DONE]") == 1
    assert events[-1] == b"[DONE]"
    assert {c["id"] for c in chunks} == {"chatcmpl-local"}
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]].count("tool_calls") == 1
    assert words(chunks) == "Let me look."
    assert chunks[-1]["usage"]["total_tokens"] == 46
    calls = answered_calls("text/event-stream", merged(*STREAM))
    assert calls == (Call("set_light", {"room": "kitchen", "on": True}), Call("get_weather", {"city": "Oslo"}))


def test_words_come_before_the_upstreams_calls_are_complete_but_after_the_local_ones():
    chunks, _ = read(merged(*STREAM))
    kinds = ["call" if "tool_calls" in c["choices"][0]["delta"] else "words" for c in chunks[1:-1]]
    assert kinds == ["call", "call", "words", "words", "call", "call"]


def test_a_stream_with_the_very_same_call_carries_it_once():
    same = {**DELTA, "function": {"name": "set_light", "arguments": SAME["function"]["arguments"]}}
    stream = merged(
        chunk({"role": "assistant", "content": "Ha."}), chunk({"tool_calls": [same]}), chunk({}, "tool_calls")
    )
    assert len(answered_calls("text/event-stream", stream)) == 1


def test_keep_alives_and_empty_events_are_nothing():
    assert words(read(merged(b"", b"not json", b"7", chunk({"content": "x"}, "stop")))[0]) == "x"


def test_an_error_event_of_the_upstream_ends_the_stream_as_an_error():
    merger = StreamMerger(LOCAL, include_usage=False)
    out = merger.feed(b'{"error":{"message":"overloaded"}}')
    assert b"overloaded" in out
    assert merger.failed
    assert not merger.complete


def test_nothing_follows_an_error_or_the_end_of_the_upstream():
    for last in (b'{"error":{"message":"overloaded"}}', b"[DONE]"):
        merger = StreamMerger(LOCAL, include_usage=False)
        merger.feed(last)
        assert merger.feed(json.dumps(chunk({"content": "late"})).encode()) == b""


def test_what_the_chunks_carry_beside_their_choices_goes_on_the_finish_chunk():
    cited = chunk({"content": "x"}, citations=["a"], finish="odd", obfuscation="pad", service_tier="default")
    last = read(merged(cited, chunk({}, "stop")))[0][-1]
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    assert (last["citations"], last["service_tier"], last["id"]) == (["a"], "default", "chatcmpl-local")
    assert "obfuscation" not in last


def test_usage_that_the_upstream_did_not_give_makes_no_chunk():
    chunks, _ = read(merged(chunk({"content": "x"}, "stop"), include_usage=True))
    assert all(c["choices"] for c in chunks)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_call_that_the_upstream_could_not_finish_is_left_out(finish):
    stream = merged(chunk({"content": "Let me"}), chunk({"tool_calls": [DELTA]}), chunk({}, finish))
    assert answered_calls("text/event-stream", stream) == (Call("set_light", {"room": "kitchen", "on": True}),)
    body = completion("Let me", upstream_call("call_up", "get_weather", '{"city":'))
    body["choices"][0]["finish_reason"] = finish
    assert names(merge_json(LOCAL, body)) == ["set_light"]


def test_a_broken_call_of_an_upstream_that_finished_is_the_clients_to_judge():
    assert names(merge_json(LOCAL, completion("x", upstream_call("u", "g", "{")))) == ["set_light", "g"]


@given(st.lists(st.integers(1, 6), max_size=30))
def test_however_the_upstream_cuts_its_arguments_the_calls_are_the_same(cuts):
    text = '{"city": "S\u00e3o Paulo", "days": [1, 2]}'
    pieces, position = [], 0
    for cut in cuts:
        pieces.append(text[position : position + cut])
        position += cut
    pieces.append(text[position:])
    head = {**DELTA, "function": {"name": "get_weather", "arguments": ""}}
    deltas = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
    stream = merged(chunk({"tool_calls": [head]}), *deltas, chunk({}, "tool_calls"))
    assert answered_calls("text/event-stream", stream)[1] == Call("get_weather", json.loads(text))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 30}, {"a": 30.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": "Kitchen "}, {"a": "kitchen"}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1.0}}, True),
        ({"a": None}, {}, False),
        ({"a": "1"}, {"a": 1}, False),
    ],
)
def test_equality_of_calls(one, other, same):
    assert same_call(Call("f", one), Call("f", other)) is same
    assert not same_call(Call("f", one), Call("g", one))


def test_case_counts_when_folding_is_off():
    assert not same_call(Call("f", {"a": "A"}), Call("f", {"a": "a"}), fold=False)


A, B = Call("f", {"x": 1}), Call("g", {})


@pytest.mark.parametrize(
    ("local", "upstream", "slug"),
    [
        ([A, B], [B, A], "agree"),
        ([A], [Call("f", {"x": 2})], "arguments-differ"),
        ([A], [B], "name-differs"),
        ([A], [A, B], "local-missed"),
        ([], [A], "local-missed"),
        ([A], [], "upstream-none"),
        ([], [], "both-none"),
        ([A, A], [A], "name-differs"),
    ],
)
def test_comparison_with_the_upstream(local, upstream, slug):
    assert compare(local, upstream) == Comparison(slug)


def test_defaults_are_filled_before_comparing():
    assert compare([Call("f", {})], [Call("f", {"n": 5})], {"f": {"n": 5}}).slug == "agree"
