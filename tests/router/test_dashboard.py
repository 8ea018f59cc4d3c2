"""/-/dashboard: the running router and its ledger as a page, beside the requests and never in their way."""

import base64
import json
import os
import sys
import time
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.report.support import local
from tests.router.support import KITCHEN, ask, config_for, envelope, running
from tests.servers import serving, until

from needle_router.dashboard import FAILED, NOT_YET, NOTHING, OFF, TOO_LONG, Dashboard, child
from needle_router.ledger import Ledger, read_ledger
from needle_router.middleware import NeedleRouter
from needle_router.report.live import age, live
from needle_router.report.page import POLICY
from needle_router.visitors import password_of

SCRIPT = {"envelopes": [envelope(KITCHEN)]}
PATH = "/-/dashboard"


@asynccontextmanager
async def client():
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        yield http


def wrote(path, *records):
    ledger = Ledger(path)
    ledger.start()
    for record in records:
        ledger.put(record)
    ledger.close()
    return path


@pytest.mark.anyio
async def test_the_page_shows_the_totals_since_the_start_and_the_last_days(tmp_path):
    wrote(tmp_path / "decisions.db", local(time_s=time.time() - 86_400, model="yesterday"))
    async with running(tmp_path, SCRIPT) as router, client() as http:
        await http.post(f"{router.url}/v1/chat/completions", json=ask())
        await http.post(f"{router.url}/v1/chat/completions", json=ask(tools=None))
        answer = await http.get(router.url + PATH)
    assert answer.status_code == 200
    page = answer.text
    assert page.startswith("<!doctype html>")
    assert "<dt>Answered here</dt><dd><b>1</b><span>and 0 merged</span>" in page
    assert '<th scope="row">confident</th><td>1</td><td>50.0 %</td>' in page
    assert "engine ready: scripted" in page
    assert "The last 7 days, from the ledger" in page
    assert "yesterday" in page


@pytest.mark.anyio
async def test_the_answer_is_a_page_that_may_load_and_run_nothing(tmp_path):
    async with running(tmp_path, SCRIPT) as router, client() as http:
        answer = await http.get(router.url + PATH)
        head = await http.head(router.url + PATH)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == f"{POLICY}; frame-ancestors 'none'"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script" not in answer.text
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.anyio
async def test_no_text_of_a_request_stands_in_the_page(tmp_path):
    async with running(tmp_path, SCRIPT, ledger={"content": True}) as router, client() as http:
        await http.post(
            f"{router.url}/v1/chat/completions", json=ask("turn on the kitchen light and mind the xylophone")
        )
        await until(lambda: rows(tmp_path / "decisions.db") == 1)
        page = (await http.get(router.url + PATH)).text
    assert "xylophone" not in page
    assert "set_light" in page


def rows(path):
    return len(list(read_ledger(path))) if path.exists() else 0


@pytest.mark.anyio
async def test_a_hostile_model_name_is_text(tmp_path):
    async with running(tmp_path, SCRIPT) as router, client() as http:
        await http.post(f"{router.url}/v1/chat/completions", json=ask(model="<script>alert(1)</script>"))
        await until(lambda: rows(tmp_path / "decisions.db") == 1)
        page = (await http.get(router.url + PATH)).text
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.mark.anyio
async def test_foreign_names_are_refused_as_for_the_status(tmp_path):
    async with running(tmp_path, SCRIPT) as router, client() as http:
        assert (await http.get(router.url + PATH, headers={"host": "evil.example"})).status_code == 403
        assert (await http.get(router.url + PATH, headers={"origin": "https://evil.example"})).status_code == 403


@pytest.mark.anyio
async def test_where_a_key_is_needed_a_browser_is_asked_for_it_as_a_password(tmp_path):
    async with running(tmp_path, SCRIPT, server={"api_keys": ["rk"]}) as router, client() as http:
        refused = await http.get(router.url + PATH)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert refused.headers["www-authenticate"] == 'Basic realm="needle-router", charset="UTF-8"'
        assert (await http.get(router.url + PATH, auth=("me", "wrong"))).status_code == 401
        assert (await http.get(router.url + PATH, auth=("me", "rk"))).status_code == 200
        assert (await http.get(router.url + PATH, headers={"authorization": "Bearer rk"})).status_code == 200
        assert (await http.get(f"{router.url}/-/status.json", auth=("", "rk"))).status_code == 200


@pytest.mark.anyio
async def test_a_password_opens_nothing_but_pages(tmp_path):
    async with running(tmp_path, SCRIPT, server={"api_keys": ["rk"]}) as router, client() as http:
        refused = await http.post(f"{router.url}/v1/chat/completions", json=ask(), auth=("me", "rk"))
        assert refused.status_code == 401
        assert "www-authenticate" not in refused.headers
        assert (await http.get(f"{router.url}/metrics", auth=("me", "rk"))).status_code == 401


@pytest.mark.parametrize(
    ("field", "password"),
    [
        ("Basic " + base64.b64encode(b"me:a:b").decode(), "a:b"),
        ("basic " + base64.b64encode("me:schlüssel".encode()).decode(), "schlüssel"),
        ("Basic " + base64.b64encode(b"no colon").decode(), ""),
        ("Basic " + base64.b64encode(b"me:\xff").decode(), ""),
        ("Basic ***", ""),
        ("Basic", ""),
        ("Bearer rk", ""),
        ("", ""),
    ],
)
def test_a_password_is_read_out_of_its_field(field, password):
    assert password_of(field) == password


@pytest.mark.anyio
async def test_in_an_app_its_own_page_of_that_name_comes_first(tmp_path):
    def own(request):
        return PlainTextResponse("the app's own")

    for routes, text in (([Route(PATH, own)], "the app's own"), ([], "<!doctype html>")):
        app = NeedleRouter(Starlette(routes=routes), config_for(tmp_path, SCRIPT))
        async with serving(app, lifespan="on") as url, client() as http:
            assert (await http.get(url + PATH)).text.startswith(text)


@pytest.mark.anyio
async def test_a_ledger_that_is_off_or_not_there_yet_is_said(tmp_path):
    assert OFF in await Dashboard(None, days=7, penalty_usd=0).markup()
    assert NOTHING in await Dashboard(tmp_path / "none.db", days=7, penalty_usd=0).markup()


@pytest.mark.anyio
async def test_a_ledger_that_cannot_be_read_is_said(tmp_path):
    path = tmp_path / "decisions.db"
    path.write_text("no database, but long enough to be looked at" * 50)
    assert "The ledger cannot be read: file is not a database" in await Dashboard(path, days=7, penalty_usd=0).markup()


@pytest.mark.anyio
async def test_only_the_last_days_count_and_the_penalty_is_the_configured_one(tmp_path):
    now_s = time.time()
    records = [local(time_s=now_s - 3 * 86_400, model="ancient"), local(time_s=now_s - 60, comparison="name-differs")]
    page = await Dashboard(wrote(tmp_path / "d.db", *records), days=2, penalty_usd=0.25).markup()
    assert "of 1 requests" in page
    assert "answers found wrong: 1, $0.2500 each" in page
    assert "ancient" not in page


@pytest.mark.anyio
async def test_what_was_found_is_kept_for_a_while(tmp_path):
    path = wrote(tmp_path / "d.db", local(time_s=time.time() - 60))
    dashboard = Dashboard(path, days=2, penalty_usd=0)
    first = await dashboard.markup()
    wrote(path, local(time_s=time.time() - 60))
    assert await dashboard.markup() == first


def in_its_place(code):
    """A command that notes its process in the file `pid` and then does something else than reading."""
    note = "open('new', 'w').write(str(os.getpid())); os.rename('new', 'pid')"
    return (sys.executable, "-c", f"import os, sys, time; {note}; {code}")


def ended(folder):
    """Whether the process that noted itself is gone."""
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.anyio
async def test_one_reads_and_the_others_are_told_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = wrote(tmp_path / "d.db")
    wait = "[time.sleep(0.01) for _ in iter(lambda: os.path.exists('go'), True)]; print('<p>found</p>')"
    dashboard = Dashboard(path, days=2, penalty_usd=0, command=in_its_place(wait))
    found = []

    async def ask_for_it():
        found.append(await dashboard.markup())

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(ask_for_it)
            await until((tmp_path / "pid").exists)
            assert [NOT_YET in await dashboard.markup() for _ in range(5)] == [True] * 5
            (tmp_path / "go").touch()
    assert found == ["<p>found</p>\n"]


@pytest.mark.anyio
async def test_a_reading_past_its_deadline_is_killed_and_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dashboard = Dashboard(
        wrote(tmp_path / "d.db"), days=2, penalty_usd=0, deadline_s=1, command=in_its_place("time.sleep(60)")
    )
    with anyio.fail_after(20):
        assert TOO_LONG in await dashboard.markup()
    assert ended(tmp_path)


@pytest.mark.anyio
async def test_a_request_that_is_cancelled_takes_the_reading_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dashboard = Dashboard(wrote(tmp_path / "d.db"), days=2, penalty_usd=0, command=in_its_place("time.sleep(60)"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(dashboard.markup)
            await until((tmp_path / "pid").exists)
            group.cancel_scope.cancel()
    assert ended(tmp_path)


@pytest.mark.anyio
async def test_a_reading_that_fails_is_said(tmp_path, caplog):
    dashboard = Dashboard(wrote(tmp_path / "d.db"), days=2, penalty_usd=0, command=(sys.executable, "-c", "exit(3)"))
    assert FAILED in await dashboard.markup()
    assert "ended with code 3" in caplog.text


@pytest.mark.anyio
async def test_the_certificates_in_force_stand_in_the_page(tmp_path):
    path = wrote(tmp_path / "d.db", local(time_s=time.time() - 60, fingerprint="ab"))
    entry = {"fingerprint": "ab", "per_tool": False, "tools": {"*": {"threshold": 0.625}}}
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"version": 2, "certificates": [entry]}))
    page = await Dashboard(path, days=2, penalty_usd=0, certificates=[str(file)]).markup()
    assert "<caption>Certificates</caption>" in page
    assert "<td>0.625</td>" in page
    file.unlink()
    page = await Dashboard(path, days=2, penalty_usd=0, certificates=[str(file)]).markup()
    assert "The certificates cannot be read: No such file or directory" in page


def test_only_so_many_records_are_read_the_newest(tmp_path):
    path = wrote(tmp_path / "d.db", *(local(time_s=time.time() - 60, model=f"model-{number}") for number in range(5)))
    order = {"ledger": str(path), "until_s": time.time(), "days": 7, "penalty_usd": 0, "certificates": []}
    page = child.recorded(order, most=2)
    assert child.NEWEST_ONLY in page
    assert [f"model-{number}" in page for number in range(5)] == [False, False, False, True, True]
    assert child.NEWEST_ONLY not in child.recorded(order, most=6)


def status(**changes):
    """A status document with something in each part."""
    engine = {"state": "ready", "backend": "<b>", "model": "&", "workers": 1, "queue_depth": 0, "restarts": 0}
    nothing = {"requests": 0, "errors": 0, "cost_usd": 0, "cost_unknown": 0, "usage_unknown": 2}
    lost = {"requests": 4, "compared": 5, "cost_usd": 0.25, "cost_unknown": 0}
    routes = dict.fromkeys(("local", "merged", "upstream", "refused"), nothing)
    saved = {"prompt_tokens": 1200, "completion_tokens": 34, "cost_usd": 0.5, "cost_unknown": 3}
    trial = {"tool": "<i>", "fingerprint": "ab", "step": 2, "steps": 3, "compared": 40, "wrong": 1}
    return {
        "version": "1",
        "mode": "on",
        "engine": engine,
        "upstream": {"state": "none"},
        "ledger": {"state": "ok", "dropped": 0},
        "totals": {**routes, "saved": saved, "wasted": lost, "audits": lost},
        "reasons": {"confident": 3, "no-tools": 1},
        "canary": {
            "tools": [trial | {"share": 0.3, "alarm": False}, trial | {"share": None, "steps": 0, "alarm": True}]
        },
        **changes,
    }


def test_the_live_half_tells_of_everything_and_escapes_what_it_is_given():
    text = live(status(), running_s=90)
    assert "engine ready: &lt;b&gt; &amp;" in text
    assert "<b>$0.5000</b><span>1,234 tokens, 3 of unknown cost</span>" in text
    assert "<b>$0.0000</b><span>2 of unknown cost</span>" in text
    assert "<dt>Cancelled races</dt><dd><b>$0.2500</b><span>4 calls</span>" in text
    assert "<dt>Audits</dt><dd><b>$0.2500</b><span>5 compared</span>" in text
    assert '<th scope="row">confident</th><td>3</td><td>75.0 %</td>' in text
    assert "&lt;i&gt;</th><td>ab</td><td>2 of 3</td><td>30.0 %</td><td>1 of 40</td><td>-</td>" in text
    assert "<td>-</td><td>-</td><td>1 of 40</td><td>alarm</td>" in text
    assert "Since the start, 1 minute ago" in text


def test_before_the_first_request_there_is_no_table():
    assert "<table" not in live(status(reasons={}, canary={"tools": []}), running_s=1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 seconds"), (1, "1 second"), (59, "59 seconds"), (3600, "1 hour"), (90_000, "1 day"), (200_000, "2 days")],
)
def test_an_age_is_told_in_its_largest_unit(seconds, text):
    assert age(seconds) == text
