"""Embedded in somebody's FastAPI app, which has a `router.py` and a `/metrics` of its own."""

import contextlib
import sys

import fastapi
import httpx
import openai
import pytest
from fastapi.responses import JSONResponse
from tests.router.support import KITCHEN, TEXT, CannedUpstream, ask, config_for, envelope
from tests.servers import serving, until

import needle_router
from needle_router.engine.base import EngineState

pytestmark = pytest.mark.anyio


@pytest.fixture
def own_router(tmp_path, monkeypatch):
    """The app's own modules called `router` and `policies`, found first."""
    (tmp_path / "router.py").write_text("from fastapi import APIRouter\nrouter = APIRouter()\nNAME = 'mine'\n")
    (tmp_path / "policies.py").write_text("NAME = 'mine'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import policies
    import router

    yield router
    assert policies.NAME == router.NAME == "mine"
    for name in ("router", "policies"):
        sys.modules.pop(name, None)


def app_for(upstream: CannedUpstream, own_router) -> fastapi.FastAPI:
    app = fastapi.FastAPI()
    app.include_router(own_router.router)
    app.mount("/v1", fastapi.FastAPI(routes=upstream.app().routes[:0]))
    app.router.routes.clear()
    app.add_api_route("/v1/chat/completions", upstream.complete, methods=["POST"], response_model=None)
    app.add_api_route("/metrics", lambda: JSONResponse({"mine": True}), methods=["GET"])
    return app


@contextlib.asynccontextmanager
async def embedded(folder, own_router, script, **sections):
    upstream = CannedUpstream()
    app = app_for(upstream, own_router)
    app.add_middleware(needle_router.NeedleRouter, config=config_for(folder, script, **sections))
    async with serving(app) as url, httpx.AsyncClient(base_url=url) as http:
        await until_ready(http)
        yield url, upstream, http


async def until_ready(http):
    state = EngineState.LOADING
    while state == EngineState.LOADING:
        state = (await http.get("/readyz")).json()["engine"]["state"]
    assert state == EngineState.READY


async def test_the_same_answers_inside_a_fastapi_app(tmp_path, own_router):
    async with embedded(tmp_path, own_router, {"envelopes": [envelope(KITCHEN), envelope()]}) as (url, upstream, _):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as sdk:
            async with sdk.chat.completions.stream(**ask()) as stream:
                local = await stream.get_final_completion()
            forwarded = await sdk.chat.completions.create(**ask("tell me a joke"))
        assert local.choices[0].message.tool_calls[0].function.name == "set_light"
        assert forwarded.choices[0].message.content == "Hello from upstream."
        assert len(upstream.bodies) == 1


async def test_words_are_merged_inside_a_fastapi_app(tmp_path, own_router):
    async with embedded(tmp_path, own_router, {"envelopes": [envelope(KITCHEN)]}) as (url, _, _http):
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as sdk:
            answer = await sdk.chat.completions.create(**ask(f"{TEXT} and tell me a joke"))
        assert answer.choices[0].message.content == "Hello from upstream."
        assert answer.choices[0].message.tool_calls[0].function.name == "set_light"


async def test_the_apps_own_endpoints_stay_and_ours_fill_the_gaps(tmp_path, own_router):
    async with embedded(tmp_path, own_router, {"envelopes": [envelope()]}) as (_, _, http):
        assert (await http.get("/metrics")).json() == {"mine": True}
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/nowhere")).status_code == 404


async def test_no_argument_but_the_app_is_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NEEDLE_ROUTER_ENGINE_BACKEND", "NEEDLE_ROUTER_ENGINE_MODEL"):
        monkeypatch.setenv(name, {"NEEDLE_ROUTER_ENGINE_BACKEND": "rust", "NEEDLE_ROUTER_ENGINE_MODEL": "tiny"}[name])
    monkeypatch.setenv("NEEDLE_ROUTER_LEDGER_PATH", "off")
    router = needle_router.NeedleRouter(CannedUpstream().app())
    assert router.config.engine.model == "tiny"
    async with serving(router, lifespan="on") as url:
        await until(lambda: router.services.engine.health().state is EngineState.READY)
        async with httpx.AsyncClient(timeout=20) as http:
            answer = await http.post(f"{url}/v1/chat/completions", json=ask("tell me a joke"))
        assert answer.status_code == 200


async def test_without_a_lifespan_the_first_request_starts_the_engine(tmp_path):
    router = needle_router.NeedleRouter(
        CannedUpstream().app(), config_for(tmp_path, {"envelopes": [envelope(KITCHEN)]})
    )
    try:
        async with serving(router, lifespan="off") as url, httpx.AsyncClient(timeout=20) as http:
            first = await http.post(f"{url}/v1/chat/completions", json=ask())
            assert first.headers["x-needle-reason"] in ("engine-loading", "confident")
            await until(lambda: router.services.engine.health().state is EngineState.READY)
            second = await http.post(f"{url}/v1/chat/completions", json=ask())
            assert second.headers["x-needle-route"] == "local"
    finally:
        await router.stop()
    assert router.services.engine.health().pids == ()
