"""Answers as the official SDK reads them, streamed and not, and as the stream defects of other servers forbid them."""

import json

import httpx2
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from needle_router.sse import EventSplitter
from needle_router.surfaces.chat_answers import arguments_text, chunks, render
from needle_router.surfaces.chat_read import CallCollector, answered_calls
from needle_router.turn import AnsweredCall, Call, Reply, Usage

CALLS = (AnsweredCall("call_1", "set_light", '{"room":"k"}'), AnsweredCall("call_2", "list_alarms", "{}"))


def reply(**changes) -> Reply:
    values = {"id": "chatcmpl-1", "created": 1700000000, "model": "m", "fingerprint": "fp", "usage": Usage(10, 4)}
    return Reply(**{**values, "calls": CALLS, "finish_reason": "tool_calls", **changes})


def events(stream: bytes) -> list[bytes]:
    return list(EventSplitter().feed(stream))


def parsed(stream: bytes) -> list[dict]:
    return [json.loads(event) for event in events(stream) if event != b"[DONE]"]


def test_a_completion_is_valid_for_the_sdk_and_has_every_required_key():
    body = json.loads(render(reply()))
    completion = ChatCompletion.model_validate(body, strict=True)
    message = completion.choices[0].message
    assert message.content is None
    assert [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls] == [
        ("call_1", "set_light", '{"room":"k"}'),
        ("call_2", "list_alarms", "{}"),
    ]
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage.total_tokens == 14
    assert set(body["choices"][0]["message"]) >= {"role", "content", "refusal", "annotations", "tool_calls"}
    assert body["choices"][0]["logprobs"] is None
    assert "estimated" not in body["usage"]


def test_an_estimated_usage_says_so():
    assert json.loads(render(reply(usage=Usage(1, 1, estimated=True))))["usage"]["estimated"] is True


def test_the_extension_and_the_reasoning_are_shown_only_when_given():
    hidden, shown = (
        json.loads(render(reply())),
        json.loads(render(reply(extension={"route": "local"}, reasoning="why"))),
    )
    assert "x_needle" not in hidden
    assert "reasoning_content" not in hidden["choices"][0]["message"]
    assert shown["x_needle"] == {"route": "local"}
    assert shown["choices"][0]["message"]["reasoning_content"] == "why"


def test_a_stream_has_the_one_order_that_all_sdks_take():
    stream = b"".join(chunks(reply(), include_usage=False))
    found = parsed(stream)
    for chunk in found:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    assert events(stream)[-1] == b"[DONE]"
    assert {(c["id"], c["created"], c["model"]) for c in found} == {("chatcmpl-1", 1700000000, "m")}
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    deltas = [c["choices"][0]["delta"] for c in found]
    heads = [t for d in deltas for t in d.get("tool_calls", ()) if "id" in t]
    assert [(t["index"], t["id"], t["type"], t["function"]["name"], t["function"]["arguments"]) for t in heads] == [
        (0, "call_1", "function", "set_light", ""),
        (1, "call_2", "function", "list_alarms", ""),
    ]
    tails = [t for d in deltas for t in d.get("tool_calls", ()) if "id" not in t]
    assert all("name" not in t["function"] and "type" not in t for t in tails)
    assert [c["choices"][0]["finish_reason"] for c in found] == [None] * (len(found) - 1) + ["tool_calls"]
    assert deltas[-1] == {}
    assert all("usage" not in c for c in found)


def test_usage_stands_alone_before_the_end_when_it_was_asked_for():
    found = parsed(b"".join(chunks(reply(), include_usage=True)))
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["total_tokens"] == 14
    assert [c["usage"] for c in found[:-1]] == [None] * (len(found) - 1)
    assert all(c["choices"] for c in found[:-1])


def sdk(body: bytes, kind: str) -> OpenAI:
    """The official client in front of one prepared answer."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=body, headers={"content-type": kind})

    transport = httpx2.MockTransport(answer)
    return OpenAI(api_key="k", base_url="http://mock/v1", http_client=httpx2.Client(transport=transport))


def test_the_official_client_puts_the_stream_together_again():
    stream = b"".join(chunks(reply(reasoning="why", extension={"route": "local"}), include_usage=True))
    with (
        sdk(stream, "text/event-stream") as client,
        client.chat.completions.stream(model="m", messages=[], stream_options={"include_usage": True}) as found,
    ):
        completion = found.get_final_completion()
    choice = completion.choices[0]
    assert [(c.id, c.type, c.function.name, c.function.arguments) for c in choice.message.tool_calls] == [
        ("call_1", "function", "set_light", '{"room":"k"}'),
        ("call_2", "function", "list_alarms", "{}"),
    ]
    assert (choice.finish_reason, choice.message.role, choice.message.content) == ("tool_calls", "assistant", None)
    assert (completion.id, completion.usage.total_tokens) == ("chatcmpl-1", 14)


def test_the_official_client_reads_text_and_refusal_of_a_stream():
    stream = b"".join(chunks(reply(calls=(), content="hi \u00e9", finish_reason="stop"), include_usage=False))
    refused = b"".join(chunks(reply(calls=(), refusal="cannot", finish_reason="stop"), include_usage=False))
    for body, expected in ((stream, ("hi \u00e9", None)), (refused, (None, "cannot"))):
        with (
            sdk(body, "text/event-stream") as client,
            client.chat.completions.stream(model="m", messages=[]) as found,
        ):
            message = found.get_final_completion().choices[0].message
        assert (message.content, message.refusal) == expected


def test_the_official_client_parses_a_whole_answer():
    with sdk(render(reply()), "application/json") as client:
        parsed = client.chat.completions.parse(model="m", messages=[])
    assert [c.function.name for c in parsed.choices[0].message.tool_calls] == ["set_light", "list_alarms"]


@pytest.mark.parametrize("index", [pytest.param({"index": 0}, id="all at index 0"), pytest.param({}, id="no index")])
def test_calls_that_a_server_does_not_number_are_told_apart_by_their_ids(index):
    collector = CallCollector()
    for call in CALLS:
        collector.add([{**index, "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}])
    assert collector.calls() == CALLS


def test_an_id_repeated_on_each_piece_is_still_one_call():
    collector = CallCollector()
    for piece in ('{"room"', ':"k"}'):
        collector.add([{"index": 0, "id": "call_1", "function": {"name": "set_light", "arguments": piece}}])
    assert collector.calls() == CALLS[:1]


def test_a_streamed_text_answer_is_complete():
    found = parsed(b"".join(chunks(reply(calls=(), content="hello", finish_reason="stop"), include_usage=False)))
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in found) == "hello"
    assert found[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param({}, "{}", id="none"),
        pytest.param({"a": None}, '{"a":null}', id="null"),
        pytest.param({"a": "é\u2028"}, '{"a":"é\u2028"}', id="not ASCII"),
        pytest.param({"a": 'q"\n\x01\\'}, '{"a":"q\\"\\n\\u0001\\\\"}', id="quotes and control characters"),
        pytest.param({"n": 12345678901234567890123}, '{"n":12345678901234567890123}', id="beyond 64 bits"),
        pytest.param({"s": "\ud83d"}, '{"s":"\\ud83d"}', id="lone surrogate"),
    ],
)
def test_arguments_are_one_line_of_json_text(arguments, text):
    assert arguments_text(arguments) == text
    assert "\n" not in text
    assert json.loads(text) == arguments


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
def test_calls_are_read_back_from_a_stream_however_it_was_cut(size):
    stream = b"".join(chunks(reply(), include_usage=True))
    splitter, collector = EventSplitter(), CallCollector()
    for start in range(0, len(stream), size):
        for data in splitter.feed(stream[start : start + size]):
            if data != b"[DONE]" and (choices := json.loads(data)["choices"]):
                collector.add(choices[0]["delta"].get("tool_calls"))
    assert collector.calls() == CALLS


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_calls_are_read_back_from_an_answer(kind):
    body = render(reply()) if kind == "application/json" else b"".join(chunks(reply(), include_usage=False))
    assert answered_calls(kind, body) == (Call("set_light", {"room": "k"}), Call("list_alarms", {}))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"choices":[]}', b'{"error":{}}', b"<html>"])
def test_an_answer_that_is_no_completion_reads_as_unknown(body):
    assert answered_calls("application/json", body) is None
