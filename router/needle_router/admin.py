"""The router's own endpoints: health, metrics, status and dashboard. Read-only; only the dashboard reads a file."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.types import Send

from needle_router._version import __version__
from needle_router.engine.base import EngineState
from needle_router.report.live import live
from needle_router.report.page import POLICY, sheet
from needle_router.report.period import when
from needle_router.services import Services

Answer = tuple[int, bytes, str]
Endpoint = Callable[[Services], Answer | Awaitable[Answer]]
JSON = "application/json"
HTML = "text/html; charset=utf-8"
#: What /readyz calls the whole, by engine state; forwarding works in every one of them.
OVERALL = {
    EngineState.READY: "ok",
    EngineState.LOADING: "degraded",
    EngineState.FAILED: "degraded",
    EngineState.OFF: "ok",
}


def healthz(services: Services) -> Answer:
    """The process is alive."""
    return 200, b'{"status":"ok"}', JSON


def readyz(services: Services) -> Answer:
    """Whether requests can be served: also degraded, while passing everything on; 503 only while draining."""
    if services.draining:
        return 503, orjson.dumps({"status": "draining", **parts(services)}), JSON
    state = services.engine.health().state
    ready = services.upstream or state is EngineState.READY
    shown = parts(services)
    overall = "degraded" if shown["upstream"]["state"] == "unreachable" else OVERALL[state]
    body = {"status": overall if ready else state.value, **shown}
    return (200 if ready else 503), orjson.dumps(body), JSON


def parts(services: Services) -> dict[str, Any]:
    """The state of engine, upstream and ledger."""
    health = services.engine.health()
    return {
        "version": __version__,
        "mode": services.config.mode,
        "engine": {
            "state": health.state.value,
            "backend": health.backend or services.config.engine.backend,
            "model": health.model or services.config.engine.model,
            "workers": health.workers,
            "queue_depth": health.queue_depth,
            "restarts": health.restarts,
            "detail": health.detail,
        },
        "upstream": upstream_part(services),
        "ledger": {
            "state": services.ledger.state,
            "dropped": services.ledger.dropped,
            "detail": services.ledger.detail,
        },
    }


def upstream_part(services: Services) -> dict[str, Any]:
    """Whether there is an upstream; those of our own proxy in their order, each with its breaker."""
    if not services.upstream:
        return {"state": "none"}
    members = services.upstream_states()
    shut = bool(members) and all(member.breaker == "open" for member in members)
    shown: dict[str, Any] = {"state": "unreachable" if shut else "configured"}
    return shown | {"members": [dataclasses.asdict(member) for member in members]} if members else shown


def document(services: Services) -> dict[str, Any]:
    """State, totals and reasons since the start."""
    health = services.engine.health()
    body = {
        **parts(services),
        "totals": services.totals.as_dict(),
        "reasons": services.totals.reasons(),
        "canary": {
            "alarms": services.standings.alarms,
            "promotions": services.standings.promotions,
            "tools": services.standings.shown(),
        },
    }
    body["ledger"] |= {"written": services.ledger.written}
    body["engine"] |= {"reinits": health.reinits, "pids": list(health.pids)}
    return body


def status(services: Services) -> Answer:
    """The same as JSON."""
    return 200, orjson.dumps(document(services)), JSON


def metrics(services: Services) -> Answer:
    """Prometheus exposition."""
    services.metrics.refresh(services.engine.health(), ledger_dropped=services.ledger.dropped)
    services.metrics.canary(promotions=services.standings.promotions, alarms=services.standings.alarms)
    services.metrics.breakers([member.breaker for member in services.upstream_states()])
    body, kind = services.metrics.render()
    return 200, body, kind


async def dashboard(services: Services) -> Answer:
    """The page for people: what runs, the totals since the start, and what the ledger says of the last days."""
    running = live(document(services), running_s=services.now() - services.started)
    days = services.config.report.dashboard_days
    recorded = f"<h2>The last {days:g} days, from the ledger</h2>{await services.dashboard.markup()}"
    return 200, sheet("needle-router", when(services.now()), running + recorded).encode(), HTML


ENDPOINTS: dict[str, Endpoint] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/health": readyz,
    "/metrics": metrics,
    "/-/status.json": status,
    "/-/dashboard": dashboard,
}
#: What a browser is told about a page: nothing but its own style, in no frame of anybody's.
PAGE_FIELDS = (
    (b"content-security-policy", f"{POLICY}; frame-ancestors 'none'".encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


async def respond(send: Send, endpoint: Endpoint, services: Services, *, head: bool) -> None:
    """Send an endpoint's answer."""
    found = endpoint(services)
    status_code, body, kind = await found if inspect.isawaitable(found) else found
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *(PAGE_FIELDS if kind == HTML else ()),
    ]
    await send({"type": "http.response.start", "status": status_code, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
