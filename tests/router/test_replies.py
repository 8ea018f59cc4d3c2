"""Fixed sentences after tool results, over HTTP: when the upstream is spared, and when it is not."""

import json

import httpx
import openai
import pytest
from tests.router.support import KITCHEN, LIGHT, TEXT, WEATHER, alone, config_for, envelope, running
from tests.servers import until

from needle_router.explaining import explain
from needle_router.ledger import read_ledger

pytestmark = pytest.mark.anyio
SCRIPT = {"envelopes": [envelope(KITCHEN)]}
REPLIES = {
    "kind": "replies",
    "templates": {"set_light": "The {room} light is set.", "get_weather": "{result.degrees} degrees in {city}."},
}
POLICY = [{"kind": "guards"}, REPLIES, {"kind": "threshold", "minimum": 0.7}]
WEATHER_TEXT = f"{TEXT} and tell me the weather in Oslo"


def call(name, identifier, **arguments):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


LIT = call("set_light", "call_a", room="kitchen", on=True)
OSLO = call("get_weather", "call_b", city="Oslo")


def assistant(*calls, content=None):
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(text="ok", identifier="call_a"):
    return {"role": "tool", "tool_call_id": identifier, "content": text}


def user(text=TEXT):
    return {"role": "user", "content": text}


def body(*messages, **fields):
    return {"model": "big", "messages": list(messages or TURN), "tools": [LIGHT, WEATHER], **fields}


TURN = (user(), assistant(LIT), result())


async def post(router, sent, **headers):
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(f"{router.url}/v1/chat/completions", json=sent, headers=headers)


def route(answered):
    return answered.headers["x-needle-route"], answered.headers["x-needle-reason"]


async def test_a_result_is_answered_with_the_sentence_of_its_tool(tmp_path):
    async with running(tmp_path, SCRIPT, policy=POLICY) as router:
        answered = await post(router, body())
        assert route(answered) == ("local", "reply-template")
        found = answered.json()
        choice = found["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("The kitchen light is set.", "stop")
        assert "tool_calls" not in choice["message"]
        assert (found["model"], found["x_needle"]["type"], found["x_needle"]["confidence"]) == ("big", "template", None)
        assert found["usage"]["estimated"]
        assert found["usage"]["completion_tokens"] == 9  # 25 bytes, three a token
        assert found["usage"]["prompt_tokens"] > 50
        assert (router.upstream.bodies, router.fed()) == ([], [])
        assert router.totals["saved"]["completion_tokens"] == 9
    (record,) = read_ledger(tmp_path / "decisions.db")
    assert (record.route, record.reason, record.policy, record.status) == ("local", "reply-template", "replies", 200)
    assert (record.engine_ran, record.tools_called) == (False, ())
    assert record.saved_usd == pytest.approx(
        (found["usage"]["prompt_tokens"] * 2 + found["usage"]["completion_tokens"] * 8) / 1e6
    )


async def test_a_stream_has_the_sentence_once_and_its_usage_where_asked_for(tmp_path):
    async with (
        running(tmp_path, SCRIPT, policy=POLICY) as router,
        openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="k", max_retries=0) as sdk,
    ):
        sent = body()
        del sent["model"]
        for options in ({}, {"stream_options": {"include_usage": True}}):
            stream = await sdk.chat.completions.create(model="big", stream=True, **sent, **options)
            chunks = [chunk async for chunk in stream]
            words = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert words == "The kitchen light is set."
            assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
            assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == ([9] if options else [])
        assert router.upstream.bodies == []


async def test_several_results_make_several_sentences(tmp_path):
    turn = (user(WEATHER_TEXT), assistant(LIT, OSLO), result('{"degrees": 7}', "call_b"), result())
    async with running(tmp_path, SCRIPT, policy=POLICY) as router:
        found = (await post(router, body(*turn))).json()
        assert found["choices"][0]["message"]["content"] == "7 degrees in Oslo.\nThe kitchen light is set."


FORWARDED = {
    "a tool without a template": body(user(), assistant(call("other", "call_a")), result()),
    "one of two results is an error": body(
        user(WEATHER_TEXT), assistant(LIT, OSLO), result(), result('{"error": "down"}', "call_b")
    ),
    "a call without a result": body(user(WEATHER_TEXT), assistant(LIT, OSLO), result()),
    "a result of no call": body(user(), assistant(LIT), result(), result("x", "call_z")),
    "two results of one call": body(user(), assistant(LIT), result(), result()),
    "a wish that no call was made for": body(user(WEATHER_TEXT), assistant(LIT), result()),
    "words of the system after the result": body(*TURN, {"role": "system", "content": "Answer in French."}),
    "a picture among the results": body(
        user(), assistant(LIT), {**result(), "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    ),
    "structured output": body(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    ),
    "JSON": body(response_format={"type": "json_object"}),
    "a call is required": body(tool_choice="required"),
    "several choices": body(n=2),
    "logprobs": body(logprobs=True),
}


@pytest.mark.parametrize("sent", FORWARDED.values(), ids=FORWARDED)
async def test_what_is_left_to_the_upstream(tmp_path, sent):
    async with running(tmp_path, SCRIPT, policy=POLICY) as router:
        answered = await post(router, sent)
        assert answered.headers["x-needle-route"] == "upstream"
        assert answered.headers["x-needle-reason"] != "reply-template"
        assert [json.loads(raw) for raw in router.upstream.bodies] == [sent]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"stop": ["light"]}, "stop-string", id="a stop string in the sentence"),
        pytest.param({"max_tokens": 8}, "max-tokens", id="one token too few"),
    ],
)
async def test_a_sentence_that_the_request_would_cut_is_left_to_the_upstream(tmp_path, fields, reason):
    async with running(tmp_path, SCRIPT, policy=POLICY) as router:
        assert route(await post(router, body(**fields))) == ("upstream", reason)
        assert route(await post(router, body(stop=["dark"], max_tokens=9))) == ("local", "reply-template")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"x-needle-mode": "shadow"}, "tool-result-turn"),
        ({"x-needle-mode": "off"}, "mode-off"),
        ({"x-needle-never": "set_light"}, "tool-never"),
    ],
)
async def test_a_request_can_forbid_it(tmp_path, headers, reason):
    async with running(tmp_path, SCRIPT, policy=POLICY) as router:
        assert route(await post(router, body(), **headers)) == ("upstream", reason)


async def test_without_the_policy_the_upstream_answers_every_result(tmp_path):
    async with running(tmp_path, SCRIPT) as router:
        assert route(await post(router, body())) == ("upstream", "tool-result-turn")


async def test_a_whole_loop_needs_no_upstream(tmp_path):
    async with running(tmp_path, SCRIPT, policy=POLICY) as router:
        first = (await post(router, body(user()))).json()["choices"][0]["message"]
        answered = await post(router, body(user(), first, result(identifier=first["tool_calls"][0]["id"])))
        assert answered.json()["choices"][0]["message"]["content"] == "The kitchen light is set."
        await until(lambda: router.totals["local"]["requests"] == 2)
        assert router.upstream.bodies == []


async def test_needle_alone_answers_as_ever(tmp_path):
    async with alone(tmp_path, SCRIPT, policy=POLICY) as router:
        assert route(await post(router, body())) == ("local", "no-upstream")


async def test_explain_shows_the_sentence(tmp_path):
    config = config_for(tmp_path, SCRIPT, upstream="http://127.0.0.1:9/v1", policy=POLICY)
    shown = await explain(config, json.dumps(body()).encode())
    assert (shown["route"], shown["reason"], shown["policy"]) == ("local", "reply-template", "replies")
    assert shown["answer"] == "The kitchen light is set."
    json.dumps(shown)
