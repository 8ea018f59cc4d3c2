"""A canary in a running router: promoted and taken back by what comparisons show, over restarts and reloads."""

import contextlib

import httpx
import msgspec
import pytest
from tests.router.support import KITCHEN, TEXT, CannedUpstream, ask, config_for, envelope, running
from tests.servers import serving, until

from needle_policies.lots import lot
from needle_router.build import standings_path
from needle_router.cli.reload import Reloading
from needle_router.engine.base import EngineState
from needle_router.ledger import read_ledger
from needle_router.standings.resets import ask_for

pytestmark = pytest.mark.anyio
SCRIPT = {"envelopes": [envelope(KITCHEN, confidence=0.97)]}
OTHER = {"name": "set_light", "arguments": {"room": "attic", "on": True}}
AGREES, DIFFERS = CannedUpstream(words="", calls=[KITCHEN]), CannedUpstream(words="", calls=[OTHER])


def policies(**options):
    canary = {"kind": "canary", "steps": [0.3, 0.6], "max_error": 0.2, "window": 100, **options}
    return [{"kind": "guards"}, canary, {"kind": "threshold", "minimum": 0.7}]


async def prompt_with_lot(low, high):
    """A first message whose conversation has a lot between the two; the words that vary mean nothing to a verifier."""
    from needle_router.features import conversation
    from needle_router.turn import Message, Turn

    for number in range(10_000):
        said = {"role": "system", "content": f"time: {number // 60:02}:{number % 60:02}"}
        messages = (Message("system", said["content"]), Message("user", TEXT))
        if low <= lot("canary", conversation(Turn(b"", "big", messages))) < high:
            return [said, {"role": "user", "content": TEXT}]
    raise AssertionError("no conversation has such a lot")


async def send(http, url, messages):
    answer = await http.post(f"{url}/v1/chat/completions", json=ask(messages=messages))
    assert answer.status_code == 200
    return answer.headers["x-needle-route"], answer.headers["x-needle-reason"]


def compared(router):
    return sum(row["compared"] for row in router.services.standings.shown())


async def test_agreement_lets_more_conversations_in_without_a_restart(tmp_path):
    watched, between = await prompt_with_lot(0.8, 1.0), await prompt_with_lot(0.4, 0.6)
    async with (
        running(tmp_path, SCRIPT, upstream=AGREES, policy=policies()) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await send(http, router.url, between) == ("upstream", "canary-rest")
        watching = 2
        while not router.router.services.standings.promotions:
            assert await send(http, router.url, watched) == ("upstream", "canary-rest")
            watching += 1
        assert await send(http, router.url, between) == ("local", "confident")
        assert await send(http, router.url, watched) == ("upstream", "canary-rest")
        # The engine runs behind the answers.
        await until(lambda: router.router.services.totals.reasons().get("canary-rest") == watching)
        status = (await http.get(f"{router.url}/-/status.json")).json()["canary"]
        assert (status["alarms"], status["promotions"]) == (0, 1)
        (row,) = status["tools"]
        assert (row["tool"], row["step"], row["steps"], row["share"]) == ("set_light", 2, 2, 0.6)
        metrics = (await http.get(f"{router.url}/metrics")).text
        assert "needle_router_canary_promotions_total 1.0" in metrics
        assert "needle_router_canary_alarms 0.0" in metrics
        assert f'needle_router_comparisons_total{{outcome="agree"}} {row["compared"]:.1f}' in metrics


async def test_an_alarm_takes_the_tool_back_and_holds_after_a_restart_until_it_is_reset(tmp_path, caplog):
    inside, watched = await prompt_with_lot(0.0, 0.3), await prompt_with_lot(0.8, 1.0)
    async with (
        running(tmp_path, SCRIPT, upstream=DIFFERS, policy=policies()) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await send(http, router.url, inside) == ("local", "confident")
        while not router.router.services.standings.alarms:
            assert (await send(http, router.url, watched))[0] == "upstream"
        assert await send(http, router.url, inside) == ("upstream", "alarm")
        before = compared(router.router)
        await until(lambda: compared(router.router) > 0)
        assert "alarm for set_light" in caplog.text
        assert "needle_router_canary_alarms 1.0" in (await http.get(f"{router.url}/metrics")).text
    async with (
        running(tmp_path, SCRIPT, upstream=DIFFERS, policy=policies()) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await send(http, router.url, inside) == ("upstream", "alarm")
        assert compared(router.router) >= before
    ask_for(standings_path(config_for(tmp_path), {}), ["set_light"])
    async with (
        running(tmp_path, SCRIPT, upstream=AGREES, policy=policies()) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        assert await send(http, router.url, inside) == ("local", "confident")
    records = list(read_ledger(tmp_path / "decisions.db"))
    assert {record.comparison for record in records if record.reason == "alarm"} == {"arguments-differ"}


async def test_a_reset_is_taken_up_by_a_reload_that_changes_nothing_else(tmp_path):
    inside, watched = await prompt_with_lot(0.0, 0.3), await prompt_with_lot(0.8, 1.0)
    async with contextlib.AsyncExitStack() as stack:
        base = await stack.enter_async_context(serving(DIFFERS.app()))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=20))
        config = config_for(tmp_path, SCRIPT, upstream=f"{base}/v1", policy=policies())
        served = Reloading(config, lambda: config)
        url = await stack.enter_async_context(serving(served, lifespan="on"))
        await until(lambda: served.router.services.engine.health().state is EngineState.READY)
        while not served.router.services.standings.alarms:
            await send(http, url, watched)
        ask_for(standings_path(config, {}), ["*"])
        served.ask()
        await until(lambda: not served.router.services.standings.alarms)
        assert await send(http, url, inside) == ("local", "confident")


async def test_a_reload_goes_on_with_the_trials(tmp_path):
    inside, watched = await prompt_with_lot(0.0, 0.3), await prompt_with_lot(0.8, 1.0)
    async with contextlib.AsyncExitStack() as stack:
        base = await stack.enter_async_context(serving(DIFFERS.app()))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=20))
        first = config_for(tmp_path, SCRIPT, upstream=f"{base}/v1", policy=policies())
        second = msgspec.structs.replace(first, policy=tuple(policies(max_error=0.1)))
        served = Reloading(first, lambda: second)
        url = await stack.enter_async_context(serving(served, lifespan="on"))
        await until(lambda: served.router.services.engine.health().state is EngineState.READY)
        while not served.router.services.standings.alarms:
            await send(http, url, watched)
        old = served.router
        served.ask()
        await until(lambda: served.router is not old)
        assert await send(http, url, inside) == ("upstream", "alarm")


async def test_where_everything_is_answered_here_audits_raise_the_alarm(tmp_path):
    tables = policies(steps=[], share=1.0)
    tables.insert(2, {"kind": "audit", "share": 1.0})
    async with (
        running(tmp_path, SCRIPT, upstream=DIFFERS, policy=tables) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        seen = []
        while not router.router.services.standings.alarms:
            seen.append(await send(http, router.url, [{"role": "user", "content": TEXT}]))
            # An audit follows its answer; the next request must not overtake it.
            await until(lambda: router.totals["audits"]["compared"] == len(seen))
        assert set(seen) == {("local", "confident")}
        assert await send(http, router.url, [{"role": "user", "content": TEXT}]) == ("upstream", "alarm")
        (row,) = (await http.get(f"{router.url}/-/status.json")).json()["canary"]["tools"]
        assert (row["alarm"], row["share"], row["steps"]) == (True, 0.0, 0)


async def test_calls_that_the_threshold_would_not_answer_are_no_evidence(tmp_path):
    watched = await prompt_with_lot(0.8, 1.0)
    unsure = {"envelopes": [envelope(KITCHEN, confidence=0.6)]}
    async with (
        running(tmp_path, unsure, upstream=DIFFERS, policy=policies()) as router,
        httpx.AsyncClient(timeout=20) as http,
    ):
        for _ in range(30):
            assert await send(http, router.url, watched) == ("upstream", "canary-rest")
        await until(lambda: router.router.services.totals.reasons() == {"canary-rest": 30})
        assert router.router.services.standings.shown() == []
    records = list(read_ledger(tmp_path / "decisions.db"))
    assert {(record.comparison, record.answerable) for record in records} == {("arguments-differ", False)}
