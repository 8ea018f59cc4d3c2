"""The router's own endpoints: health, metrics and status. Read-only, no I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import orjson
from starlette.types import Send

from needle_router._version import __version__
from needle_router.engine.base import EngineState
from needle_router.services import Services

Endpoint = Callable[[Services], tuple[int, bytes, str]]
JSON = "application/json"
#: What /readyz calls the whole, by engine state; forwarding works in every one of them.
OVERALL = {
    EngineState.READY: "ok",
    EngineState.LOADING: "degraded",
    EngineState.FAILED: "degraded",
    EngineState.OFF: "ok",
}


def healthz(services: Services) -> tuple[int, bytes, str]:
    """The process is alive."""
    return 200, b'{"status":"ok"}', JSON


def readyz(services: Services) -> tuple[int, bytes, str]:
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


def status(services: Services) -> tuple[int, bytes, str]:
    """Totals since the start."""
    health = services.engine.health()
    body = {
        **parts(services),
        "totals": services.totals.as_dict(),
        "reasons": services.totals.reasons(),
    }
    body["ledger"] |= {"written": services.ledger.written}
    body["engine"] |= {"reinits": health.reinits, "pids": list(health.pids)}
    return 200, orjson.dumps(body), JSON


def metrics(services: Services) -> tuple[int, bytes, str]:
    """Prometheus exposition."""
    services.metrics.refresh(services.engine.health(), ledger_dropped=services.ledger.dropped)
    services.metrics.breakers([member.breaker for member in services.upstream_states()])
    body, kind = services.metrics.render()
    return 200, body, kind


ENDPOINTS: dict[str, Endpoint] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/health": readyz,
    "/metrics": metrics,
    "/-/status.json": status,
}


async def respond(send: Send, answer: tuple[int, bytes, str], *, head: bool) -> None:
    """Send an endpoint's answer."""
    status_code, body, kind = answer
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status_code, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
