"""Needle alone: every row of what it can, cannot and only nearly can do."""

import json

import httpx
import openai
import pytest
from tests.router.support import KITCHEN, LIGHT, TEXT, WEATHER, alone, ask, config_for, envelope

from needle_router.cli.demo.home import HOME
from needle_router.explaining import explain

pytestmark = pytest.mark.anyio
RESULT = [
    {"role": "user", "content": TEXT},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_ndl" + "x" * 21, "type": "function", "function": {"name": "set_light", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_ndl" + "x" * 21, "content": '{"ok": true}'},
]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "light",
        "schema": {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]},
    },
}


async def post(router, body):
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(f"{router.url}/v1/chat/completions", json=body)


async def test_a_call_is_served_as_the_engine_said_it_with_warnings(tmp_path):
    doubtful = envelope({"name": "set_light", "arguments": {"room": "cellar", "on": True}}, confidence=0.01)
    async with alone(tmp_path, {"envelopes": [doubtful]}) as router:
        answer = (await post(router, ask(seed=4, n=2))).json()
        assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "set_light"
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        warnings = answer["x_needle"]["warnings"]
        assert "seed has no effect on a local answer" in warnings
        assert {"many-choices", "ungrounded"} <= set(warnings)
        assert answer["x_needle"]["reason"] == "no-upstream"


@pytest.mark.parametrize("stream", [False, True])
async def test_no_call_gives_the_reasoning_as_content(tmp_path, stream):
    async with alone(tmp_path, {"envelopes": [envelope(confidence=0.1)]}) as router:
        async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="x", max_retries=0) as sdk:
            if stream:
                async with sdk.chat.completions.stream(**ask("who are you")) as events:
                    answer = await events.get_final_completion()
            else:
                answer = await sdk.chat.completions.create(**ask("who are you"))
        message = answer.choices[0].message
        assert (message.content, answer.choices[0].finish_reason) == ("because", "stop")
        assert message.tool_calls is None


async def test_after_a_tool_result_the_engine_sees_the_conversation(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope(KITCHEN), envelope()]}) as router:
        answer = (await post(router, ask(messages=RESULT))).json()
        assert router.fed() == [TEXT, '[{"ok":true}]']
        assert answer["choices"][0]["message"]["content"] == "because"
        assert answer["x_needle"]["replayed_turns"] == 2


async def test_a_conversation_of_too_many_steps_is_refused(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope()]}, engine={"max_replay_steps": 1}) as router:
        answer = await post(router, ask(messages=RESULT))
        assert answer.status_code == 400
        assert "max_replay_steps" in answer.json()["error"]["message"]


async def test_structured_output_is_extraction(tmp_path):
    script = {"envelopes": [envelope({"name": "light", "arguments": {"room": "kitchen"}}), envelope()]}
    async with alone(tmp_path, script) as router:
        body = {"model": "needle-2", "messages": [{"role": "user", "content": TEXT}], "response_format": SCHEMA}
        found = (await post(router, body)).json()["choices"][0]
        assert (json.loads(found["message"]["content"]), found["finish_reason"]) == ({"room": "kitchen"}, "stop")
        refused = (await post(router, body)).json()["choices"][0]["message"]
        assert (refused["content"], refused["refusal"]) == (None, "because")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"response_format": {"type": "json_object"}, "tools": None}, "json_object", id="json_object"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            "media_input",
            id="an image",
        ),
        pytest.param({"tools": [{"type": "web_search"}]}, "tool_kind", id="a hosted tool"),
        pytest.param({"functions": [{"name": "f"}]}, "legacy_functions", id="legacy functions"),
        pytest.param({"messages": [{"role": "user", "content": "<|im_start|>"}]}, "control_marker", id="a marker"),
        pytest.param(
            {"messages": [{"role": "user", "content": "</tool_call>"}], "tools": None},
            "control_marker",
            id="a marker and no tools at all",
        ),
        pytest.param({"messages": [{"role": "user", "content": "a\0b"}], "tools": None}, "bad_text", id="a NUL"),
        pytest.param({"messages": [{"role": "user", "content": "x" * 9000}]}, "context_length_exceeded", id="too long"),
        pytest.param({"messages": [{"role": "user", "content": ""}]}, "empty_turn", id="nothing said"),
        pytest.param(
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}},
                    }
                ]
            },
            "schema_unsupported",
            id="a schema of anything",
        ),
    ],
)
async def test_what_needle_cannot_do_is_a_400_that_says_so(tmp_path, fields, code):
    async with alone(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router:
        answer = await post(router, ask(**fields))
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (400, code, "invalid_request_error")
        assert set(error) == {"message", "type", "param", "code"}
        assert answer.headers["x-should-retry"] == "false"
        assert router.fed() == []


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        pytest.param({"raise": "boom"}, 502, "engine_error", id="error"),
        pytest.param({"envelopes": [envelope()], "crash": True}, 502, "engine_crash", id="crash"),
        pytest.param({"envelopes": [envelope()], "hang": True}, 504, "engine_timeout", id="hang"),
        pytest.param({"envelopes": [{"function_calls": 1}]}, 502, "engine_garbage", id="garbage"),
        pytest.param({"envelopes": [{"success": False, "error_code": "truncated"}]}, 502, "truncated", id="truncated"),
    ],
)
async def test_a_failing_engine_is_an_error_of_its_own_kind(tmp_path, script, status, code):
    async with alone(tmp_path, script, engine={"deadline_s": 0.5}) as router:
        answer = await post(router, ask())
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_tool_choice_none_declares_nothing_and_a_named_one_only_that(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        await post(router, ask(tool_choice="none"))
        await post(router, ask(tool_choice={"type": "function", "function": {"name": "get_weather"}}))
        log = [json.loads(line) for line in (tmp_path / "engine.log").read_text().splitlines()]
        declared = [[tool["name"] for tool in entry["tools"]] for entry in log if entry["op"] == "init"]
        assert [] in declared
        assert [WEATHER["function"]["name"]] in declared
        assert ["set_light", "get_weather"] not in declared


async def test_the_model_is_listed_and_other_paths_are_not_found_in_the_apis_own_words(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router, httpx.AsyncClient(base_url=router.url) as http:
        listed = (await http.get("/v1/models")).json()
        assert (listed["object"], len(listed["data"])) == ("list", 1)
        missing = await http.get("/v1/files")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_url")
        broken = await http.post("/v1/chat/completions", content=b"{", headers={"content-type": "application/json"})
        assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_body")
        assert (await http.get("/readyz")).json()["upstream"] == {"state": "none"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(TEXT, {"route": "local", "reason": "no-upstream"}, id="answered"),
        pytest.param("<|im_start|>", {"route": "local", "reason": "no-upstream"}, id="refused"),
    ],
)
async def test_explain_knows_that_there_is_nobody_else_to_ask(tmp_path, text, expected):
    config = config_for(tmp_path, {"envelopes": [envelope(KITCHEN)]})
    shown = await explain(config, json.dumps(ask(text)).encode())
    assert {key: shown[key] for key in expected} == expected
    assert shown.get("error", {}).get("code") == ("control_marker" if text != TEXT else None)


async def streamed(router, body):
    """The chunks of a streamed answer, and its raw end."""
    answer = await post(router, {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    return [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]


@pytest.mark.parametrize(
    ("said", "delta"),
    [
        pytest.param(
            envelope({"name": "light", "arguments": {"room": "kitchen"}}), {"content": '{"room":"kitchen"}'}, id="found"
        ),
        pytest.param(envelope(), {"refusal": "because"}, id="refused"),
    ],
)
async def test_structured_output_streams_its_object_or_its_refusal(tmp_path, said, delta):
    async with alone(tmp_path, {"envelopes": [said]}) as router:
        body = {"model": "x", "messages": [{"role": "user", "content": TEXT}], "response_format": SCHEMA}
        chunks = await streamed(router, body)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        assert delta in deltas
        assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "stop"
        assert chunks[-1]["usage"]["estimated"] is True


async def test_an_error_of_a_stream_has_its_status(tmp_path):
    async with alone(tmp_path, {"raise": "boom"}) as router:
        answer = await post(router, ask(stream=True))
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_error")


@pytest.mark.parametrize(
    ("said", "fields", "warning"),
    [
        pytest.param(envelope(KITCHEN, confidence=0.2), {}, "below-threshold", id="little confidence"),
        pytest.param(envelope(KITCHEN, confidence=None), {}, "confidence-unknown", id="no confidence"),
        pytest.param(envelope({"name": "dance", "arguments": {}}), {}, "unknown-tool", id="an unknown name"),
        pytest.param(
            envelope({"name": "set_light", "arguments": {"room": "kitchen", "on": "so-so"}}),
            {},
            "invalid-arguments",
            id="invalid arguments",
        ),
        pytest.param(envelope(KITCHEN, KITCHEN), {"parallel_tool_calls": False}, "parallel-forbidden", id="two calls"),
        pytest.param(envelope(KITCHEN), {"logprobs": True}, "logprobs", id="logprobs"),
        pytest.param(envelope(KITCHEN), {"store": True}, "stored", id="store"),
        pytest.param(
            envelope(KITCHEN),
            {"tool_choice": "required"},
            "tool_choice required cannot be enforced: Needle decides whether to call a tool",
            id="required",
        ),
        pytest.param(envelope(KITCHEN), {"temperature": 0.3}, "temperature has no effect on a local answer", id="heat"),
        pytest.param(
            envelope(KITCHEN),
            {"tools": [LIGHT, *({"type": "function", "function": {"name": f"tool_{i}"}} for i in range(20))]},
            "too-many-tools",
            id="21 tools",
        ),
    ],
)
async def test_what_an_upstream_would_be_asked_for_is_served_with_a_warning(tmp_path, said, fields, warning):
    async with alone(tmp_path, {"envelopes": [said]}) as router:
        answer = (await post(router, ask(**fields))).json()
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        assert warning in answer["x_needle"]["warnings"]


async def test_a_sure_call_has_no_warnings(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router:
        assert (await post(router, ask())).json()["x_needle"]["warnings"] == []


async def test_the_tiny_models_usage_is_counted_and_not_estimated(tmp_path):
    async with alone(tmp_path, {"envelopes": []}, engine={"backend": "rust", "model": "tiny", "script": ""}) as router:
        usage = (await post(router, ask("turn on the kitchen lights", tools=HOME))).json()["usage"]
        assert "estimated" not in usage
        assert usage["prompt_tokens"] > 100
        # As needle-rs counts <tool_call>[{"name":"set_lights","arguments":{"room":"kitchen","on":true}}]</tool_call>.
        assert usage["completion_tokens"] == 28
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


async def test_needle_alone_answers_until_it_has_stopped(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router:
        router.router.begin_drain()
        answer = await post(router, ask())
        assert (answer.status_code, answer.headers["x-needle-reason"]) == (200, "no-upstream")
