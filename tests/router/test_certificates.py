"""Certificates at work in a running router: what is answered, what voids them, and how they are taken up."""

import json

import httpx
import pytest
from tests.router.support import KITCHEN, LIGHT, WEATHER, CannedUpstream, alone, ask, config_for, envelope, running
from tests.servers import serving, until

from needle_router import create_app
from needle_router.cli.reload import Reloading
from needle_router.engine.base import EngineState
from needle_router.errors import ConfigError
from needle_router.explaining import explain
from needle_router.ledger import read_ledger

pytestmark = pytest.mark.anyio
SCRIPT = {"envelopes": [envelope(KITCHEN, confidence=0.75)]}
PROMPT = {"role": "system", "content": "You run a home.\ndate: 2026-11-30 Mon"}


def policies(folder, **options):
    path = str(folder / "certificates.json")
    return [{"kind": "guards"}, {"kind": "threshold", "minimum": 0.9, "certificates": path, **options}]


def certify(folder, fingerprint, **scores):
    tools = {name: {"threshold": score} for name, score in scores.items()}
    entry = {"fingerprint": fingerprint, "per_tool": True, "tools": tools}
    (folder / "certificates.json").write_text(json.dumps({"version": 2, "certificates": [entry]}))


async def fingerprint_of(folder, body, **sections):
    config = config_for(folder, SCRIPT, upstream="http://127.0.0.1:9/v1", **sections)
    return (await explain(config, json.dumps(body).encode()))["fingerprint"]


async def sent(http, url, body):
    answer = await http.post(f"{url}/v1/chat/completions", json=body)
    assert answer.status_code == 200
    return answer.headers["x-needle-route"], answer.headers["x-needle-reason"]


def prompted(text):
    return ask(messages=[{"role": "system", "content": text}, *ask()["messages"]])


STRICTER = {**LIGHT, "function": {**LIGHT["function"], "description": "Switch any light of the house"}}


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        pytest.param(prompted(PROMPT["content"]), ("local", "confident"), id="as certified"),
        pytest.param(
            prompted("You run a home.\ndate: 2026-12-01 Tue"), ("local", "confident"), id="the next day's prompt"
        ),
        pytest.param(
            {**prompted(PROMPT["content"]), "tools": [STRICTER, WEATHER]},
            ("upstream", "certificate-void"),
            id="a changed tool",
        ),
        pytest.param(
            {**prompted(PROMPT["content"]), "tools": [LIGHT]}, ("upstream", "certificate-void"), id="a tool less"
        ),
        pytest.param(
            prompted("You run a home at night.\ndate: 2026-11-30 Mon"),
            ("upstream", "certificate-void"),
            id="another prompt",
        ),
    ],
)
async def test_a_certified_score_holds_where_it_was_certified(tmp_path, body, seen):
    certify(tmp_path, await fingerprint_of(tmp_path, prompted(PROMPT["content"])), set_light=0.7)
    async with (
        running(tmp_path, SCRIPT, policy=policies(tmp_path)) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await sent(http, router.url, body) == seen


async def test_what_is_void_is_compared_so_that_it_can_be_certified_anew(tmp_path):
    certify(tmp_path, "0000000000000000", set_light=0.7)
    upstream = CannedUpstream(words="", calls=[KITCHEN])
    async with (
        running(tmp_path, SCRIPT, upstream=upstream, policy=policies(tmp_path)) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await sent(http, router.url, ask()) == ("upstream", "certificate-void")
        await until(lambda: router.router.services.totals.reasons())
    (record,) = read_ledger(tmp_path / "decisions.db")
    assert (record.reason, record.policy, record.comparison) == ("certificate-void", "threshold", "agree")
    assert record.fingerprint == await fingerprint_of(tmp_path, ask())


async def test_where_void_means_forward_the_engine_does_not_run(tmp_path):
    certify(tmp_path, "0000000000000000", set_light=0.7)
    async with (
        running(tmp_path, SCRIPT, policy=policies(tmp_path, void="forward")) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await sent(http, router.url, ask()) == ("upstream", "certificate-void")
        assert router.fed() == []


@pytest.mark.parametrize(
    ("uncertified", "seen"),
    [("never", ("upstream", "uncertified")), ("minimum", ("upstream", "below-threshold"))],
)
async def test_a_tool_without_a_certificate_goes_by_the_option(tmp_path, uncertified, seen):
    certify(tmp_path, await fingerprint_of(tmp_path, ask()), get_weather=0.7)
    async with (
        running(tmp_path, SCRIPT, policy=policies(tmp_path, uncertified=uncertified)) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await sent(http, router.url, ask()) == seen


@pytest.mark.parametrize("section", [{"engine": {"session": "replay"}}, {"engine": {"system": "none"}}])
async def test_another_session_mode_or_reading_of_the_prompt_voids(tmp_path, section):
    certify(tmp_path, await fingerprint_of(tmp_path, ask()), set_light=0.7)
    async with (
        running(tmp_path, SCRIPT, policy=policies(tmp_path), **section) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await sent(http, router.url, ask()) == ("upstream", "certificate-void")


async def test_a_reload_takes_up_a_changed_file_and_leaves_a_broken_one(tmp_path, caplog):
    fingerprint = await fingerprint_of(tmp_path, ask())
    certify(tmp_path, fingerprint, set_light=0.8)
    async with serving(CannedUpstream().app()) as base, httpx.AsyncClient(timeout=20) as http:
        config = config_for(tmp_path, SCRIPT, upstream=f"{base}/v1", policy=policies(tmp_path))
        served = Reloading(config, lambda: config)
        async with serving(served, lifespan="on") as url:
            await until(lambda: served.router.services.engine.health().state is EngineState.READY)
            assert await sent(http, url, ask()) == ("upstream", "below-threshold")
            old = served.router
            certify(tmp_path, fingerprint, set_light=0.7)
            served.ask()
            await until(lambda: served.router is not old)
            assert await sent(http, url, ask()) == ("local", "confident")
            (tmp_path / "certificates.json").write_text("{}")
            served.ask()
            await until(lambda: "the old one stays" in caplog.text)
            assert "has version null; this router reads 2: calibrate again" in caplog.text
            assert await sent(http, url, ask()) == ("local", "confident")


async def test_needle_alone_answers_and_names_the_missing_certificate_as_a_doubt(tmp_path):
    certify(tmp_path, "0000000000000000", set_light=0.7)
    async with alone(tmp_path, SCRIPT, policy=policies(tmp_path)) as router, httpx.AsyncClient(timeout=20) as http:
        answer = (await http.post(f"{router.url}/v1/chat/completions", json=ask())).json()
        assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "set_light"
        assert answer["x_needle"]["warnings"] == ["certificate-void"]


async def test_a_router_does_not_start_with_a_file_that_is_not_there(tmp_path):
    config = config_for(tmp_path, SCRIPT, policy=policies(tmp_path))
    with pytest.raises(
        ConfigError, match=r"policy\[1\].certificates: .*certificates.json cannot be read: No such file"
    ):
        create_app(config)
