"""The three routes over HTTP, with the official client: local, upstream, merged."""

import json

import httpx
import openai
import pytest
from pydantic import BaseModel
from tests.router.support import KITCHEN, TEXT, CannedUpstream, ask, config_for, envelope, running
from tests.servers import serving, until

from needle_router import create_app

pytestmark = pytest.mark.anyio


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-client", max_retries=0)


async def post(url: str, body, **headers) -> httpx.Response:
    async with httpx.AsyncClient(timeout=20) as http:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await http.post(
            f"{url}/v1/chat/completions", content=content, headers={"content-type": "application/json", **headers}
        )


async def test_a_confident_call_is_answered_without_the_upstream(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router:
        async with client(router.url) as sdk:
            raw = await sdk.chat.completions.with_raw_response.create(**ask())
        answer = raw.parse()
        assert router.upstream.bodies == []
        assert (raw.headers["x-needle-route"], raw.headers["x-needle-reason"]) == ("local", "confident")
        assert raw.headers["x-needle-confidence"] == "0.9700"
        assert float(raw.headers["x-needle-overhead-ms"]) >= 0
        assert raw.headers["x-request-id"] == answer._request_id
        call = answer.choices[0].message.tool_calls[0]
        assert (call.function.name, json.loads(call.function.arguments)) == ("set_light", KITCHEN["arguments"])
        assert (answer.model, answer.choices[0].finish_reason) == ("big", "tool_calls")
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
        assert answer.x_needle["route"] == "local"
        assert answer.choices[0].message.reasoning_content == "because"
        assert router.totals["local"] == {"requests": 1, "cost_usd": 0}
        assert router.totals["saved"]["prompt_tokens"] == answer.usage.prompt_tokens
        # Three bytes a token: the trace, which nobody else would have written, and the call between its markers.
        thoughts = len("<think>\nbecause\n</think>\n")
        call = len('<tool_call>[{"name":"set_light","arguments":{"room":"kitchen","on":true}}]</tool_call>')
        assert answer.usage.completion_tokens == -(-(thoughts + call) // 3)
        assert router.totals["saved"]["completion_tokens"] == -(-call // 3)


async def test_parallel_calls_stream_through_the_sdks_own_accumulator(tmp_path):
    weather = {"name": "get_weather", "arguments": {"city": "Oslo"}}
    script = {"envelopes": [envelope(KITCHEN, weather)]}
    async with running(tmp_path, script) as router, client(router.url) as sdk:
        body = ask(f"{TEXT} and get the weather in Oslo", stream_options={"include_usage": True})
        async with sdk.chat.completions.stream(**body) as stream:
            final = await stream.get_final_completion()
        calls = final.choices[0].message.tool_calls
        assert [call.function.name for call in calls] == ["set_light", "get_weather"]
        assert len({call.id for call in calls}) == 2
        assert final.usage.total_tokens > 0
        assert router.upstream.bodies == []


class SetLight(BaseModel):
    """Switch the light of a room."""

    room: str
    on: bool
    scene: str | None


async def test_parse_with_a_strict_schema_gets_null_for_what_was_not_said(tmp_path):
    script = {"envelopes": [envelope({"name": "SetLight", "arguments": {"room": "kitchen", "on": True}})]}
    async with running(tmp_path, script) as router, client(router.url) as sdk:
        answer = await sdk.chat.completions.parse(
            model="big", messages=[{"role": "user", "content": TEXT}], tools=[openai.pydantic_function_tool(SetLight)]
        )
        parsed = answer.choices[0].message.tool_calls[0].function.parsed_arguments
        assert parsed == SetLight(room="kitchen", on=True, scene=None)
        assert router.upstream.bodies == []


async def test_a_structured_answer_is_extracted_when_certain_and_forwarded_when_not(tmp_path):
    script = {"envelopes": [envelope({"name": "SetLight", "arguments": {"room": "kitchen", "on": True}})]}
    async with running(tmp_path, script) as router, client(router.url) as sdk:

        async def extract(text):
            return await sdk.chat.completions.parse(
                model="big", messages=[{"role": "user", "content": text}], response_format=SetLight
            )

        answer = await extract(TEXT)
        assert answer.choices[0].message.parsed == SetLight(room="kitchen", on=True, scene=None)
        assert answer.choices[0].finish_reason == "stop"
        assert answer.x_needle["reason"] == "extracted"
        router.upstream.words = '{"room": "hall", "on": true, "scene": null}'
        assert (await extract("turn on the hall light")).choices[0].message.parsed.room == "hall"
        await until(lambda: router.router.services.totals.reasons().get("extraction-uncertain") == 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_doubtful_turn_goes_on_byte_for_byte(tmp_path, stream):
    raw = json.dumps(ask(stream=stream), indent=3).encode() + b"\n "
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN, confidence=0.2)]}) as router:
        answer = await post(router.url, raw, authorization="Bearer sk-client")
        assert router.upstream.bodies == [raw]
        assert router.upstream.headers[0]["authorization"] == "Bearer sk-client"
        assert (answer.headers["x-needle-route"], answer.headers["x-needle-reason"]) == ("upstream", "below-threshold")
        assert "Hello" in answer.text
        await until(lambda: router.totals["upstream"]["requests"] == 1)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param({"envelopes": [envelope()]}, "no-call", id="no call"),
        pytest.param({"envelopes": [envelope(KITCHEN, confidence=None)]}, "confidence-unknown", id="no score"),
        pytest.param({"envelopes": [{"success": False, "error_code": "truncated"}]}, "truncated", id="truncated"),
        pytest.param({"envelopes": [{"success": False, "error": "x"}]}, "engine-error", id="the engine's own error"),
        pytest.param({"raise": "boom secret"}, "engine-error", id="the engine raises"),
        pytest.param({"envelopes": [{"function_calls": 5}]}, "engine-garbage", id="garbage"),
        pytest.param({"envelopes": [envelope(KITCHEN)], "crash": True}, "engine-crash", id="the engine dies"),
        pytest.param({"envelopes": [envelope(KITCHEN)], "hang": True}, "engine-timeout", id="the engine hangs"),
        pytest.param({"envelopes": [envelope({"name": "x", "arguments": {}})]}, "unknown-tool", id="unknown tool"),
    ],
)
async def test_any_doubt_about_the_engine_forwards(tmp_path, script, reason):
    async with running(tmp_path, script, engine={"deadline_s": 0.5}) as router:
        answer = await post(router.url, ask())
        assert answer.status_code == 200
        assert answer.headers["x-needle-reason"] == reason
        assert answer.json()["choices"][0]["message"]["content"] == "Hello from upstream."
        assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"{", "unparsed", id="not JSON"),
        pytest.param(
            json.dumps({"model": "big", "messages": [{"role": "user", "content": "hi"}]}).encode(),
            "no-tools",
            id="no tools",
        ),
        pytest.param(json.dumps(ask(n=2)).encode(), "many-choices", id="n"),
        pytest.param(json.dumps(ask("<|im_start|>system")).encode(), "control-marker", id="marker"),
        pytest.param(json.dumps(ask("x" * 9000)).encode(), "prompt-too-long", id="too long"),
        pytest.param(json.dumps(ask(tool_choice="none")).encode(), "tool-choice-none", id="tool_choice none"),
    ],
)
async def test_what_the_engine_cannot_serve_is_never_shown_to_it(tmp_path, body, reason):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, upstream=CannedUpstream(status=400)) as router:
        answer = await post(router.url, body)
        assert answer.status_code in (400, 500)
        assert answer.headers["x-needle-reason"] == reason
        assert router.upstream.bodies == [body]
        assert router.fed() == []


async def test_local_calls_and_upstream_words_become_one_answer(tmp_path):
    upstream = CannedUpstream(words="A joke.", calls=[KITCHEN, {"name": "get_weather", "arguments": {"city": "Oslo"}}])
    async with (
        running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, upstream=upstream) as router,
        client(router.url) as sdk,
    ):
        text = f"{TEXT} and tell me a joke"
        answer = await sdk.chat.completions.create(**ask(text))
        async with sdk.chat.completions.stream(**ask(text)) as stream:
            streamed = await stream.get_final_completion()
        for found in (answer, streamed):
            message = found.choices[0].message
            assert message.content == "A joke."
            assert [call.function.name for call in message.tool_calls] == ["set_light", "get_weather"]
            assert found.choices[0].finish_reason == "tool_calls"
        assert answer.usage.total_tokens == 46
        assert answer.x_needle["route"] == "merged"
        await until(lambda: router.totals["merged"]["requests"] == 2)


async def test_an_upstream_that_refuses_a_merge_is_heard(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, upstream=CannedUpstream(status=429)) as router:
        answer = await post(router.url, ask(f"{TEXT} and tell me a joke"))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert answer.headers["x-needle-route"] == "upstream"


async def test_calls_that_are_the_whole_answer_do_not_need_the_upstream_to_merge(tmp_path):
    script = {"envelopes": [envelope(KITCHEN)]}
    async with running(tmp_path, script, upstream=CannedUpstream(status=503), merge={"when": "always"}) as router:
        answer = await post(router.url, ask())
        assert (answer.status_code, answer.headers["x-needle-route"]) == (200, "local")
        assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "set_light"
        # It says of itself what it is, a local answer.
        assert answer.headers["x-needle-reason"] == "confident"
        assert (answer.json()["x_needle"]["route"], answer.json()["x_needle"]["reason"]) == ("local", "confident")
        assert router.totals["local"]["requests"] == 1


async def test_an_upstream_that_breaks_off_in_a_merged_stream_ends_it_as_an_error(tmp_path):
    upstream = CannedUpstream(words="A long joke.", break_after=2)
    async with (
        running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, upstream=upstream) as router,
        client(router.url) as sdk,
    ):
        with pytest.raises(openai.APIError):
            async with sdk.chat.completions.stream(**ask(f"{TEXT} and tell me a joke")) as stream:
                await stream.get_final_completion()


async def test_merging_can_be_kept_out_of_streams(tmp_path):
    script = {"envelopes": [envelope(KITCHEN)]}
    async with running(tmp_path, script, merge={"streaming": False}) as router:
        answer = await post(router.url, ask(f"{TEXT} and tell me a joke", stream=True))
        assert answer.headers["x-needle-reason"] == "intents-uncovered"


@pytest.mark.parametrize(
    ("header", "configured", "reason"),
    [
        pytest.param("off", "on", "mode-off", id="the request switches off"),
        pytest.param("force-upstream", "on", "force-upstream", id="the request forces the upstream"),
        pytest.param("shadow", "on", "shadow", id="the request asks for shadow"),
        pytest.param("on", "off", "mode-off", id="a request cannot switch on"),
        pytest.param("", "shadow", "shadow", id="configured shadow"),
        pytest.param("nonsense", "on", "confident", id="an unknown word changes nothing"),
    ],
)
async def test_a_request_can_only_tighten_the_mode(tmp_path, header, configured, reason):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, mode=configured) as router:
        answer = await post(router.url, ask(), **({"x-needle-mode": header} if header else {}))
        assert answer.headers["x-needle-reason"] == reason


async def test_shadow_answers_from_the_upstream_and_compares_afterwards(tmp_path):
    upstream = CannedUpstream(calls=[KITCHEN])
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, upstream=upstream, mode="shadow") as router:
        seen = []
        router.router.services.ledger.put = seen.append
        for stream in (False, True):
            await post(router.url, ask(stream=stream))
        await until(lambda: len(seen) == 2)
        assert [(r.route, r.reason, r.comparison, r.tools_called) for r in seen] == [
            ("upstream", "shadow", "agree", ("set_light",))
        ] * 2


@pytest.mark.parametrize(
    ("expose", "header", "body"), [("body", True, True), ("headers", True, False), ("none", False, False)]
)
async def test_expose_controls_what_is_shown(tmp_path, expose, header, body):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, server={"expose": expose}) as router:
        answer = await post(router.url, ask())
        assert ("x-needle-route" in answer.headers) is header
        assert ("x_needle" in answer.json()) is body
        assert ("reasoning_content" in answer.json()["choices"][0]["message"]) is body


async def test_other_paths_pass_unread_and_forged_headers_do_not(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router, httpx.AsyncClient() as http:
        models = await http.get(f"{router.url}/v1/models", headers={"x-needle-route": "local"})
        assert models.json()["data"][0]["id"] == "big"
        assert models.headers.get_list("x-needle-route") == ["upstream"]
        assert models.headers["x-needle-reason"] == "not-chat"
        missing = await http.get(f"{router.url}/v1/elsewhere")
        assert missing.status_code == 404


async def test_a_body_over_the_cap_is_refused(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope()]}, server={"max_body_mb": 0.01}) as router:
        answer = await post(router.url, ask("x" * 20_000))
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"
        assert "max_body_mb" in answer.json()["error"]["message"]
        assert router.upstream.bodies == []


async def test_router_keys_are_asked_for_everywhere_but_at_the_health_checks(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, server={"api_keys": ["rk-1", "rk-2"]}) as router:
        assert (await post(router.url, ask())).json()["error"]["code"] == "invalid_api_key"
        assert (await post(router.url, ask(), authorization="Bearer rk-3")).status_code == 401
        assert (await post(router.url, ask(), authorization="Bearer rk-2")).status_code == 200
        assert (await post(router.url, ask(), **{"x-needle-key": "rk-1"})).status_code == 200
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{router.url}/healthz")).status_code == 200
            assert (await http.get(f"{router.url}/v1/models")).status_code == 401
            assert (await http.get(f"{router.url}/metrics")).status_code == 401


async def test_the_upstreams_error_comes_through_as_it_is(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope()]}, upstream=CannedUpstream(status=503)) as router:
        answer = await post(router.url, ask())
        assert (answer.status_code, answer.headers["retry-after"], answer.json()["error"]["message"]) == (
            503,
            "7",
            "no",
        )
        await until(lambda: router.totals["upstream"]["errors"] == 1)


async def test_tool_turns_are_answered_while_the_upstream_is_down(tmp_path):
    script = {"envelopes": [envelope(KITCHEN)]}
    async with running(tmp_path, script, upstream=CannedUpstream()) as router:
        member = router.router.app.proxy.upstreams.members[0]
        member.wire.origin = member.origin.parse("http://127.0.0.1:9/v1")
        assert (await post(router.url, ask())).headers["x-needle-route"] == "local"
        broken = await post(router.url, ask("tell me a joke"))
        assert (broken.status_code, broken.json()["error"]["code"]) == (502, "upstream_unreachable")


async def test_own_endpoints(tmp_path):
    async with (
        running(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router,
        httpx.AsyncClient(base_url=router.url) as http,
    ):
        await post(router.url, ask())
        ready = (await http.get("/readyz")).json()
        assert (ready["status"], ready["engine"]["state"], ready["ledger"]["state"]) == ("ok", "ready", "ok")
        assert (await http.get("/health")).json() == ready
        assert (await http.head("/healthz")).status_code == 200
        status = (await http.get("/-/status.json")).json()
        assert status["totals"]["local"]["requests"] == 1
        assert status["reasons"] == {"confident": 1}
        assert status["mode"] == "on"
        assert status["engine"]["workers"] == 1
        metrics = (await http.get("/metrics")).text
        assert 'needle_router_requests_total{code="200",reason="confident",route="local"} 1.0' in metrics
        router.router.begin_drain()
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200


async def test_a_request_for_the_local_model_is_answered_by_needle_alone(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(confidence=0.1)]}) as router:
        answer = await post(router.url, ask("hello", model="needle-2"))
        assert answer.headers["x-needle-reason"] == "local-model"
        assert answer.json()["choices"][0]["message"]["content"] == "because"
        assert router.upstream.bodies == []
        assert router.totals["saved"]["prompt_tokens"] == 0


@pytest.mark.parametrize("protocol", ["none", "websockets-sansio"])
async def test_a_websocket_handshake_is_refused_quickly_so_that_clients_fall_back(tmp_path, protocol):
    router = create_app(config_for(tmp_path, {"envelopes": [envelope()]}, upstream="http://127.0.0.1:9/v1"))
    upgrade = {"connection": "upgrade", "upgrade": "websocket"}
    key = {"sec-websocket-version": "13", "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    async with serving(router, lifespan="on", ws=protocol) as url, httpx.AsyncClient() as http:
        assert (await http.get(f"{url}/v1/responses", headers={**upgrade, **key})).status_code == 426


@pytest.mark.parametrize("kept", [False, True])
async def test_the_ledger_keeps_words_only_on_request(tmp_path, kept):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, ledger={"content": kept}) as router:
        seen = []
        router.router.services.ledger.put = seen.append
        await post(router.url, ask())
        await until(lambda: seen)
        assert (TEXT in seen[0].content) is kept
        assert bool(seen[0].content) is kept


async def test_what_is_passed_on_unread_has_no_usage_to_be_unknown(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router, httpx.AsyncClient() as http:
        await http.get(f"{router.url}/v1/models")
        await until(lambda: router.totals["upstream"]["requests"] == 1)
        assert router.totals["upstream"]["usage_unknown"] == 0
        await post(router.url, ask("hello", tools=[], stream=True))
        await until(lambda: router.totals["upstream"]["requests"] == 2)
        assert router.totals["upstream"]["usage_unknown"] == 1


async def test_an_answer_that_breaks_off_in_shadow_is_noted_once_and_the_engine_is_spared(tmp_path):
    upstream = CannedUpstream(break_after=2)
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, upstream=upstream, mode="shadow") as router:
        seen = []
        router.router.services.ledger.put = seen.append
        with pytest.raises(httpx.RemoteProtocolError):
            await post(router.url, ask(stream=True))
        await until(lambda: seen)
        assert [(r.route, r.reason, r.status, bool(r.error), r.comparison) for r in seen] == [
            ("upstream", "shadow", 200, True, "")
        ]
        assert router.totals["upstream"] | {"requests": 1, "errors": 1, "usage_unknown": 1} == router.totals["upstream"]
        assert router.fed() == []


async def test_names_of_any_length_are_echoed_but_not_kept(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router:
        seen = []
        router.router.services.ledger.put = seen.append
        tools = [
            {"type": "function", "function": {"name": f"{'n' * 300}{number}", "parameters": {"type": "object"}}}
            for number in range(300)
        ]
        local = await post(router.url, ask(model="m" * 100_000))
        await post(router.url, ask(tools=tools))
        await until(lambda: len(seen) == 2)
        assert local.json()["model"] == "m" * 100_000
        assert seen[0].model == "m" * 199 + "…"
        assert seen[1].reason == "too-many-tools"
        assert seen[1].tools_offered == ("n" * 199 + "…",) * 128


async def test_a_router_that_stops_passes_on_what_others_can_answer_and_answers_for_its_own_model(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN), envelope(KITCHEN)]}) as router:
        router.router.begin_drain()
        for model, reason in (("big", "force-upstream"), ("needle-2", "local-model")):
            answer = await post(router.url, ask(model=model))
            assert (answer.status_code, answer.headers["x-needle-reason"]) == (200, reason)
        assert len(router.upstream.bodies) == 1


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        pytest.param({"authorization": "Bearer rk-1"}, "Bearer rk-1", id="a field of the upstream's goes on"),
        pytest.param(
            {"x-needle-key": "rk-1", "authorization": "Bearer sk-client"}, "Bearer sk-client", id="our own stays here"
        ),
        pytest.param({"x-needle-key": "rk-1"}, None, id="nothing is put in its place"),
    ],
)
async def test_only_a_router_key_in_a_field_of_our_own_is_kept_from_the_upstream(tmp_path, fields, shown):
    async with running(tmp_path, {"envelopes": []}, server={"api_keys": ["rk-1"]}) as router:
        assert (await post(router.url, ask(tools=[]), **fields)).status_code == 200
        (seen,) = router.upstream.headers
        assert (seen.get("authorization"), "x-needle-key" in seen) == (shown, False)
