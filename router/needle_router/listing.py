"""`GET /v1/models` where the local model is offered: alone, or appended to the upstream's own list."""

from __future__ import annotations

from typing import Any

import orjson

from needle_router.errors import ModelNotFound, UpstreamBroken
from needle_router.forward.inner import InnerResponse, open_inner
from needle_router.observe import Header, with_request_id, without_needle
from needle_router.services import Services, local_name
from needle_router.serving.accounts import Sent
from needle_router.serving.answering import JSON_HEADERS
from needle_router.serving.exchange import PASSED, Exchange
from needle_router.surfaces.chat_answers import dump

MAX_LIST_BYTES = 8 * 1024 * 1024
#: Fields that speak of the bytes as the upstream sent them.
OF_THE_BODY = (b"content-length", b"etag", b"last-modified", b"digest", b"content-digest", b"transfer-encoding")
CONDITIONS = (b"if-none-match", b"if-modified-since")


def offered(services: Services) -> bool:
    """Whether the local model is listed here."""
    return not services.upstream or services.config.server.list_local_model


def card(services: Services, name: str) -> dict[str, Any]:
    """A model of the list (OpenAPI schema `Model`)."""
    return {"id": name, "object": "model", "created": int(services.started), "owned_by": "needle-router"}


async def models(exchange: Exchange) -> None:
    """GET /v1/models."""
    services = exchange.services
    own = card(services, local_name(services.config.engine.model))
    if not services.upstream:
        return await send(exchange, 200, [*JSON_HEADERS], dump({"object": "list", "data": [own]}))
    exchange.timing.handed_over = exchange.timing.started
    scope = exchange.inner_scope(identity=True)
    scope["headers"] = [header for header in scope["headers"] if header[0].lower() not in CONDITIONS]
    async with open_inner(exchange.app, scope, exchange.receive) as answer:
        body = await whole(answer)
    headers = without_needle(answer.headers)
    merged = appended(body, own) if answer.status == 200 else None
    if merged is not None:
        headers = [header for header in headers if header[0].lower() not in OF_THE_BODY]
    headers += exchange.own_headers(PASSED, "upstream")
    await send(exchange, answer.status, headers, body if merged is None else merged)
    exchange.record("upstream", PASSED, None, Sent(answer.status))


async def model(exchange: Exchange, name: str) -> None:
    """GET /v1/models/{id} of a local model, by each of its names."""
    services = exchange.services
    if name not in services.local_models:
        raise ModelNotFound(f"The model {name[:80]!r} does not exist.", param="model")
    await send(exchange, 200, [*JSON_HEADERS], dump(card(services, name)))


async def whole(answer: InnerResponse) -> bytes:
    """The answer's body; raises UpstreamBroken where it is no list that anybody would read."""
    pieces, size = [], 0
    async for piece in answer.body:
        size += len(piece)
        if size > MAX_LIST_BYTES:
            raise UpstreamBroken(f"The upstream's list of models has more than {MAX_LIST_BYTES} bytes.")
        pieces.append(piece)
    return b"".join(pieces)


def appended(body: bytes, own: dict[str, Any]) -> bytes | None:
    """The upstream's list with our model at its end, unless it is there already; None for what is no list."""
    try:
        listed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(listed, dict) or not isinstance(listed.get("data"), list):
        return None
    names = [one.get("id") for one in listed["data"] if isinstance(one, dict)]
    if own["id"] not in names:
        listed["data"].append(own)
    return dump(listed)


async def send(exchange: Exchange, status: int, headers: list[Header], body: bytes) -> None:
    """Send a list or a card."""
    fields = [header for header in headers if header[0].lower() != b"content-length"]
    fields.append((b"content-length", str(len(body)).encode()))
    fields = with_request_id(fields, exchange.request_id)
    await exchange.send({"type": "http.response.start", "status": status, "headers": fields})
    await exchange.send({"type": "http.response.body", "body": body})
