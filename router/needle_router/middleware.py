"""`NeedleRouter`: the plain ASGI middleware that is the whole product.

Whatever app stands behind it is the upstream: an own FastAPI service, a LiteLLM or vLLM server, or our reverse proxy.
Requests other than `POST .../chat/completions` reach it untouched and unbuffered.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from needle_router import admin, listing, native_api
from needle_router.build import build
from needle_router.config.load import load_config
from needle_router.config.schema import Config
from needle_router.errors import RouterError, Unauthorized
from needle_router.forward.answer import send_error
from needle_router.observe import Header, ObservedSend, header_value, without_needle
from needle_router.services import Services
from needle_router.serving import routing
from needle_router.serving.accounts import Sent
from needle_router.serving.exchange import PASSED, Exchange
from needle_router.serving.incoming import ClientGone
from needle_router.visitors import check_host, check_origin, is_local, password_of

logger = logging.getLogger("needle_router")
MODELS = "/v1/models"
Answerer = Callable[[Exchange], Awaitable[None]]


#: Requests that are read, by the end of their path; everything else goes through unread.
POSTS: tuple[tuple[str, Answerer], ...] = (
    ("/chat/completions", routing.route),
    ("/v1/completions", routing.completions),
    ("/v1/needle/complete", native_api.complete),
    ("/v1/needle/extract", native_api.extract),
)
#: Where browsers may give a router key as a password. What they remember of one path they offer to no other, so that no
#: page of elsewhere can use it for requests.
PAGES = "/-/"
CHALLENGE: tuple[Header, ...] = ((b"www-authenticate", b'Basic realm="needle-router", charset="UTF-8"'),)
#: Paths that load balancers and scrapers ask without a key.
OPEN_PATHS = frozenset(("/healthz", "/readyz", "/health"))


class NeedleRouter:
    """Answers tool-call turns with Needle and passes everything else to `app`.

    `config` defaults to the usual file and environment; a configuration that cannot be used raises `ConfigError`.
    `standalone` is set by `create_app`: the router's own endpoints then come before the app's, otherwise only where the
    app has none (it answered 404). `upstream` says whether `app` answers what Needle cannot; always true when embedded.
    """

    def __init__(
        self, app: ASGIApp, config: Config | None = None, *, standalone: bool = False, upstream: bool = True
    ) -> None:
        self.app = app
        self.config = load_config(embedded=True) if config is None else config
        self.services: Services = build(self.config, upstream=upstream)
        self._standalone = standalone
        self._started = False
        #: False once another router has taken the ledger over.
        self.keeps_ledger = True
        self._keys = [_digest(key) for key in self.config.server.api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of any kind."""
        if scope["type"] == "http":
            await self.start()
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    # ------------------------------------------------------------------ lifetime

    async def start(self) -> None:
        """Start engine and ledger once; returns at once, and nothing that fails here fails the app."""
        if self._started:
            return
        self._started = True
        try:
            self.services.spend.start(self.services.ledger.path)
            self.services.ledger.start()
            self.services.standings.start()
            await self.services.engine.start()
        except Exception:
            logger.exception("the engine could not be started; requests are passed on")

    async def stop(self) -> None:
        """Stop the engine and write out the ledger."""
        if not self._started:
            return
        self._started = False
        await self.services.engine.aclose()
        if self.keeps_ledger:
            await asyncio.to_thread(self.services.ledger.close)
        await asyncio.to_thread(self.services.standings.close)

    async def aclose(self) -> None:
        """Stop, and close what stands behind where it can be closed (the connections of the reverse proxy)."""
        await self.stop()
        close = getattr(self.app, "aclose", None)
        if close is not None:
            await close()

    def adopt(self, other: NeedleRouter) -> None:
        """Go on counting where `other` stands, and write to the same ledger if it has the same place."""
        ours, theirs = self.services, other.services
        ours.totals, ours.metrics, ours.started = theirs.totals, theirs.metrics, theirs.started
        ours.spend.adopt(theirs.spend)
        ours.standings.adopt(theirs.standings)
        if ours.ledger.path == theirs.ledger.path:
            theirs.ledger.follow(ours.ledger)
            ours.ledger, other.keeps_ledger = theirs.ledger, False

    def begin_drain(self) -> None:
        """From now on /readyz says 503 and nothing new is tried locally; what runs goes on."""
        self.services.draining = True

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def watched_receive() -> Message:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
            return message

        async def watched_send(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                await self.stop()
            await send(message)

        await self.app(scope, watched_receive, watched_send)

    # ---------------------------------------------------------------------- http

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, headers = scope["path"], scope["headers"]
        endpoint = admin.ENDPOINTS.get(path) if scope["method"] in ("GET", "HEAD") else None
        try:
            self._admit(path, headers, own=endpoint is not None)
            if endpoint is not None and self._standalone:
                await admin.respond(send, endpoint, self.services, head=scope["method"] == "HEAD")
            elif endpoint is not None:
                await self._endpoint_unless_taken(scope, receive, send, endpoint)
            elif (answer := self._answerer(scope["method"], path)) is not None:
                await answer(Exchange(self.services, self.app, scope, receive, send, headers))
            else:
                await self._pass(scope, receive, send)
        except ClientGone:
            return
        except RouterError as error:
            asks = isinstance(error, Unauthorized) and path.startswith(PAGES)
            await send_error(send, error, headers=CHALLENGE if asks else ())

    def _answerer(self, method: str, path: str) -> Answerer | None:
        """Who answers a request that is read; None where it is passed on as it is."""
        if method == "POST":
            return next((answer for suffix, answer in POSTS if path.endswith(suffix)), None)
        if method != "GET" or not path.startswith(MODELS) or not listing.offered(self.services):
            return None
        name = path.removeprefix(MODELS)
        if not name:
            return listing.models
        # A model that is not ours is the upstream's to know.
        known = name[1:] in self.services.local_models or not self.services.upstream
        return functools.partial(listing.model, name=name[1:]) if name[0] == "/" and known else None

    def _admit(self, path: str, headers: Sequence[Header], *, own: bool) -> None:
        """Raise for a request that may not be made; embedded and without keys, that is the app's business."""
        settings = self.config.server
        if self._keys:
            if path not in OPEN_PATHS:
                self._authorise(headers, page=path.startswith(PAGES))
        elif self._standalone:
            check_origin(headers, settings.allowed_origins)
            if own and path not in OPEN_PATHS and is_local(settings.host):
                check_host(headers, settings.allowed_hosts)

    def _authorise(self, headers: Sequence[Header], *, page: bool) -> None:
        """Raise unless a router key came as bearer token, `api-key`, `x-needle-key` or, for a `page`, password."""
        authorization = header_value(headers, b"authorization")
        given = [
            authorization[7:].strip() if authorization[:7].lower() == "bearer " else "",
            password_of(authorization) if page else "",
            header_value(headers, b"api-key"),
            header_value(headers, b"x-needle-key"),
        ]
        # Digests have one length, and every pair is compared, so that time tells nothing about a key.
        matches = [hmac.compare_digest(_digest(key), known) for key in given if key for known in self._keys]
        if not any(matches):
            raise Unauthorized(
                "This router needs one of its own keys, as Authorization: Bearer, api-key or x-needle-key; "
                "the request carried none that fits."
            )

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Everything that is not a chat completion: unread and unbuffered."""
        exchange = Exchange(self.services, self.app, scope, receive, send, scope["headers"])
        exchange.timing.handed_over = exchange.timing.started
        observed = ObservedSend(
            send,
            ours=lambda _: exchange.own_headers(PASSED, "upstream"),
            request_id=exchange.request_id,
            read=False,
        )
        inner = {**scope, "headers": without_needle(scope["headers"])}
        try:
            await self.app(inner, receive, observed)
        finally:
            sent = Sent(observed.status, error="" if observed.complete else "cut")
            exchange.record("upstream", PASSED, None, sent)

    async def _endpoint_unless_taken(
        self, scope: Scope, receive: Receive, send: Send, endpoint: admin.Endpoint
    ) -> None:
        """The app's own endpoint of that name where it has one, else ours."""
        missing = False

        async def unless_missing(message: Message) -> None:
            nonlocal missing
            if message["type"] == "http.response.start" and message["status"] == 404:
                missing = True
            if not missing:
                await send(message)

        await self.app(scope, receive, unless_missing)
        if missing:
            await admin.respond(send, endpoint, self.services, head=scope["method"] == "HEAD")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
