"""Legacy completions, Needle's own endpoints and the list of models, without an upstream and in front of one."""

import json

import httpx
import openai
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.router.support import KITCHEN, LIGHT, TEXT, alone, config_for, envelope, running
from tests.servers import serving

from needle_router import create_app

pytestmark = pytest.mark.anyio
ROOM = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}


async def post(router, path, body, **headers):
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(router.url + path, json=body, headers=headers)


async def get(router, path, **headers):
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.get(router.url + path, headers=headers)


# ------------------------------------------------------------- /v1/completions


@pytest.mark.parametrize("prompt", [pytest.param(TEXT, id="a text"), pytest.param([TEXT], id="a list of one")])
async def test_a_legacy_completion_is_the_reasoning_trace(tmp_path, prompt):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="x", max_retries=0) as sdk:
            answer = await sdk.completions.create(model="needle-2", prompt=prompt)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("because", "stop")
        assert (answer.object, answer.model, answer.id[:5]) == ("text_completion", "needle-2", "cmpl-")
        assert answer.usage.prompt_tokens > 0
        assert router.fed() == [TEXT]


async def test_a_streamed_legacy_completion_is_made_of_text_completions(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="x", max_retries=0) as sdk:
            stream = await sdk.completions.create(
                model="x", prompt=TEXT, stream=True, stream_options={"include_usage": True}
            )
            got = [chunk async for chunk in stream]
        assert {chunk.object for chunk in got} == {"text_completion"}
        assert "".join(chunk.choices[0].text for chunk in got if chunk.choices) == "because"
        assert [chunk.choices[0].finish_reason for chunk in got if chunk.choices] == [None, "stop"]
        assert got[-1].choices == []
        assert got[-1].usage.total_tokens > 0


async def test_a_legacy_completion_with_tools_gives_the_calls_as_json(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router:
        answer = (await post(router, "/v1/completions", {"prompt": TEXT, "tools": [LIGHT], "echo": True})).json()
        assert json.loads(answer["choices"][0]["text"]) == [KITCHEN]
        assert "echo has no effect on a local answer" in answer["x_needle"]["warnings"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param({"prompt": [1, 2]}, "invalid_body", id="token ids"),
        pytest.param({"prompt": ["a", "b"]}, "invalid_body", id="two prompts"),
        pytest.param({}, "invalid_body", id="no prompt"),
        pytest.param([], "invalid_body", id="no object"),
        pytest.param({"prompt": ""}, "empty_turn", id="an empty prompt"),
        pytest.param({"prompt": "<|im_start|>"}, "control_marker", id="a marker"),
        pytest.param({"prompt": "x" * 9000}, "context_length_exceeded", id="too long"),
    ],
)
async def test_a_legacy_completion_that_cannot_be_served_is_a_400(tmp_path, body, code):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        answer = await post(router, "/v1/completions", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert router.fed() == []


class Legacy:
    """An upstream that has everything, and remembers what it was sent."""

    def __init__(self, models=None, status=200):
        self.bodies = []
        self.models = models
        self.status = status

    def app(self):
        return Starlette(
            routes=[
                Route("/v1/completions", self.complete, methods=["POST"]),
                Route("/v1/models", self.list),
                Route("/v1/models/{name:path}", self.list),
            ]
        )

    async def complete(self, request):
        self.bodies.append(await request.body())
        return JSONResponse({"object": "text_completion", "choices": [{"index": 0, "text": "up"}]})

    async def list(self, request):
        return Response(self.models, self.status, media_type="application/json", headers={"etag": '"1"'})


async def test_in_front_of_an_upstream_a_legacy_completion_goes_through_unchanged(tmp_path):
    upstream = Legacy()
    async with running(tmp_path, {"envelopes": [envelope()]}, upstream=upstream) as router:
        raw = b'{"prompt":  "hi", "model":"big", "odd": 1.0}'
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{router.url}/v1/completions", content=raw)
        assert answer.json()["choices"][0]["text"] == "up"
        assert answer.headers["x-needle-reason"] == "not-chat"
        assert upstream.bodies == [raw]
        assert router.fed() == []


async def test_a_legacy_completion_that_names_the_local_model_is_answered_by_it(tmp_path):
    upstream = Legacy()
    async with running(tmp_path, {"envelopes": [envelope()]}, upstream=upstream) as router:
        answer = await post(router, "/v1/completions", {"prompt": TEXT, "model": "needle-2"})
        assert answer.json()["choices"][0]["text"] == "because"
        assert answer.headers["x-needle-reason"] == "local-model"
        assert upstream.bodies == []


async def test_where_nothing_is_answered_locally_and_nobody_stands_behind_the_error_says_so(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        answer = await post(router, "/v1/completions", {"prompt": TEXT}, **{"x-needle-mode": "off"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")


# ---------------------------------------------------------- /v1/needle/complete


@pytest.mark.parametrize("upstream", [False, True], ids=["alone", "in front of an upstream"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"text": TEXT, "tools": [LIGHT]}, id="text and nested tools"),
        pytest.param({"query": TEXT, "tools": [LIGHT["function"]]}, id="query and flat tools"),
        pytest.param({"query": TEXT, "tools": json.dumps([LIGHT["function"]])}, id="tools as JSON text"),
        pytest.param({"messages": [{"role": "user", "content": TEXT}], "tools": [LIGHT]}, id="messages"),
    ],
)
async def test_complete_gives_the_envelope_as_the_engine_wrote_it(tmp_path, upstream, body):
    said = envelope(KITCHEN, prefill_tps=60.5, an_unknown_field=[1])
    context = running(tmp_path, {"envelopes": [said]}) if upstream else alone(tmp_path, {"envelopes": [said]})
    async with context as router:
        answer = (await post(router, "/v1/needle/complete", body)).json()
        about = answer.pop("x_needle")
        assert answer == said
        assert about["route"] == "local"
        assert about["reason"] == ("local-model" if upstream else "no-upstream")
        assert about["compute_seconds"] >= 0
        assert router.fed() == [TEXT]
        assert router.upstream.bodies == []
        log = [json.loads(line) for line in (tmp_path / "engine.log").read_text().splitlines()]
        (declared,) = [entry["tools"] for entry in log if entry["op"] == "init"]
        assert [list(tool) for tool in declared] == [["name", "description", "parameters"]]


async def test_complete_reads_the_system_text_as_it_stands(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        answer = await post(router, "/v1/needle/complete", {"text": TEXT, "system": "You are a lamp."})
        assert answer.status_code == 200
        log = [json.loads(line) for line in (tmp_path / "engine.log").read_text().splitlines()]
        assert [entry["system"] for entry in log if entry["op"] == "init"] == ["You are a lamp."]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        pytest.param({"tools": [LIGHT]}, "invalid_body", "text", id="no text"),
        pytest.param({"text": 1}, "invalid_body", "text", id="text is a number"),
        pytest.param({"text": TEXT, "tools": "[{"}, "invalid_body", "tools", id="tools are broken JSON"),
        pytest.param({"text": TEXT, "tools": {"a": 1}}, "invalid_body", "tools", id="tools are an object"),
        pytest.param({"text": TEXT, "system": []}, "invalid_body", "system", id="system is a list"),
        pytest.param({"text": TEXT, "max_new_tokens": 0}, "invalid_body", "max_new_tokens", id="no token at all"),
        pytest.param({"text": TEXT, "system": "<tool_call>"}, "control_marker", "messages", id="a marker in system"),
        pytest.param({"text": TEXT, "system": "x" * 9000}, "context_length_exceeded", "messages", id="a long system"),
        pytest.param({"text": TEXT, "tools": [{"type": "custom"}]}, "tool_kind", "tools", id="a custom tool"),
        pytest.param({"messages": 1}, "invalid_body", None, id="messages is a number"),
    ],
)
async def test_complete_refuses_what_it_cannot_read(tmp_path, body, code, param):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        answer = await post(router, "/v1/needle/complete", body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, code, param)
        assert router.fed() == []


@pytest.mark.parametrize("path", ["/v1/needle/complete", "/v1/needle/extract", "/v1/completions"])
async def test_a_failing_engine_is_the_same_error_everywhere(tmp_path, path):
    async with alone(tmp_path, {"raise": "boom"}) as router:
        body = {"text": TEXT, "prompt": TEXT, "schema": ROOM}
        answer = await post(router, path, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_error")


@pytest.mark.parametrize("path", ["/v1/needle/complete", "/v1/needle/extract", "/v1/completions", "/v1/models"])
async def test_the_routers_keys_are_asked_for_everywhere(tmp_path, path):
    async with alone(tmp_path, {"envelopes": [envelope()]}, server={"api_keys": ["secret"]}) as router:
        body = {"text": TEXT, "prompt": TEXT, "schema": ROOM}
        for key, status in ((None, 401), ("wrong", 401), ("secret", 200)):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            answer = await (
                get(router, path, **headers) if path == "/v1/models" else post(router, path, body, **headers)
            )
            assert answer.status_code == status


async def test_what_is_hidden_stays_hidden(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope()]}, server={"expose": "none"}) as router:
        for path in ("/v1/needle/complete", "/v1/needle/extract", "/v1/completions"):
            answer = await post(router, path, {"text": TEXT, "prompt": TEXT, "schema": ROOM})
            assert "x_needle" not in answer.json()
            assert not [name for name in answer.headers if name.startswith("x-needle")]


# ----------------------------------------------------------- /v1/needle/extract


async def test_extract_gives_the_object_or_why_there_is_none(tmp_path):
    script = {"envelopes": [envelope({"name": "light", "arguments": {"room": "kitchen"}}), envelope()]}
    async with alone(tmp_path, script) as router:
        body = {"text": TEXT, "schema": ROOM, "name": "light", "description": "A light"}
        found = (await post(router, "/v1/needle/extract", body)).json()
        assert {key: found[key] for key in ("object", "data", "matched", "refusal")} == {
            "object": "needle.extraction",
            "data": {"room": "kitchen"},
            "matched": True,
            "refusal": None,
        }
        assert found["x_needle"]["confidence"] == 0.97
        missing = (await post(router, "/v1/needle/extract", body)).json()
        assert (missing["data"], missing["matched"], missing["refusal"]) == (None, False, "because")
        log = [json.loads(line) for line in (tmp_path / "engine.log").read_text().splitlines()]
        tools = next(entry["tools"] for entry in log if entry["op"] == "init")
        assert (tools[0]["name"], tools[0]["description"]) == ("light", "A light")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        pytest.param({}, "extract", id="the default"),
        pytest.param({"schema": {**ROOM, "title": "Light"}}, "Light", id="the title"),
        pytest.param({"schema": {**ROOM, "title": "A light!"}}, "extract", id="a title that is no name"),
    ],
)
async def test_an_extraction_has_a_name(tmp_path, fields, name):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        await post(router, "/v1/needle/extract", {"text": TEXT, "schema": ROOM, **fields})
        log = [json.loads(line) for line in (tmp_path / "engine.log").read_text().splitlines()]
        assert next(entry["tools"] for entry in log if entry["op"] == "init")[0]["name"] == name


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param({"text": TEXT}, "invalid_body", id="no schema"),
        pytest.param({"schema": ROOM}, "invalid_body", id="no text"),
        pytest.param({"text": TEXT, "schema": {"type": "array"}}, "schema_unsupported", id="the root is a list"),
        pytest.param({"text": TEXT, "schema": {**ROOM, "properties": {"a": {}}}}, "schema_unsupported", id="anything"),
    ],
)
async def test_extract_refuses_what_it_cannot_hold(tmp_path, body, code):
    async with alone(tmp_path, {"envelopes": [envelope()]}) as router:
        answer = await post(router, "/v1/needle/extract", body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


# -------------------------------------------------------------------- /v1/models


async def test_alone_every_name_of_the_model_is_found_and_no_other(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope()]}, engine={"model": "/models/own-lamp.cact"}) as router:
        assert [row["id"] for row in (await get(router, "/v1/models")).json()["data"]] == ["own-lamp"]
        for name in ("own-lamp", "needle-2"):
            found = (await get(router, f"/v1/models/{name}")).json()
            assert (found["id"], found["object"], found["owned_by"]) == (name, "model", "needle-router")
        missing = await get(router, "/v1/models/gpt-5")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_the_local_model_stands_behind_those_of_the_upstream(tmp_path):
    upstream = Legacy(models=b'{"object":"list","data":[{"id":"big","extra":1}],"more":2}')
    section = {"list_local_model": True}
    async with running(tmp_path, {"envelopes": [envelope()]}, upstream=upstream, server=section) as router:
        answer = await get(router, "/v1/models", **{"if-none-match": '"1"'})
        listed = answer.json()
        assert listed["data"][0] == {"id": "big", "extra": 1}
        assert ([row["id"] for row in listed["data"]], listed["more"]) == (["big", "needle-2"], 2)
        assert "etag" not in answer.headers
        assert (await get(router, "/v1/models/needle-2")).json()["owned_by"] == "needle-router"
        assert (await get(router, "/v1/models/big")).content == upstream.models


async def test_by_default_the_upstreams_list_is_its_own(tmp_path):
    upstream = Legacy(models=b'{"object":"list",  "data":[]}')
    async with running(tmp_path, {"envelopes": [envelope()]}, upstream=upstream) as router:
        answer = await get(router, "/v1/models")
        assert (answer.content, answer.headers["etag"]) == (upstream.models, '"1"')


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b'{"error": {"message": "no"}}', 401, id="an error"),
        pytest.param(b"not json", 200, id="no JSON"),
        pytest.param(b'{"models": []}', 200, id="another form"),
    ],
)
async def test_what_is_no_list_of_models_is_relayed(tmp_path, body, status):
    section = {"list_local_model": True}
    upstream = Legacy(models=body, status=status)
    async with running(tmp_path, {"envelopes": [envelope()]}, upstream=upstream, server=section) as router:
        answer = await get(router, "/v1/models")
        assert (answer.status_code, answer.content) == (status, body)


async def test_a_dead_upstream_is_an_error_of_the_list_too(tmp_path):
    config = config_for(
        tmp_path, {"envelopes": [envelope()]}, upstream="http://127.0.0.1:9/v1", server={"list_local_model": True}
    )
    async with serving(create_app(config), lifespan="on") as url, httpx.AsyncClient() as http:
        answer = await http.get(f"{url}/v1/models")
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
