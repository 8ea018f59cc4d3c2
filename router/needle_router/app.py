"""The standalone router: `NeedleRouter` around the reverse proxy, or around nothing (Needle alone)."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from needle_router.config.load import load_config
from needle_router.config.schema import Config
from needle_router.errors import NotFound
from needle_router.forward.answer import send_error
from needle_router.forward.proxy import ReverseProxy, refuse_websocket
from needle_router.middleware import NeedleRouter


def create_app(config: Config | None = None) -> NeedleRouter:
    """The ASGI app that `needle-router serve` serves; without `config` it loads the usual file and environment."""
    config = load_config() if config is None else config
    if not config.upstream.base_url:
        return NeedleRouter(Nowhere(), config, standalone=True, upstream=False)
    outer: list[NeedleRouter] = []

    def report(kind: str) -> None:
        # The proxy is made first: the router that counts its failures stands around it.
        outer[0].services.metrics.upstream_error(kind)

    proxy = ReverseProxy(config.upstream, on_error=report)
    outer.append(NeedleRouter(Standalone(proxy), config, standalone=True))
    outer[0].services.upstream_states = lambda: proxy.upstreams.states
    return outer[0]


class Standalone:
    """The reverse proxy with a lifespan: its connections close when the server stops."""

    def __init__(self, proxy: ReverseProxy) -> None:
        self.proxy = proxy

    async def aclose(self) -> None:
        """Close the connections to the upstream."""
        await self.proxy.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward, or follow the server's life."""
        if scope["type"] != "lifespan":
            return await self.proxy(scope, receive, send)
        await _live(receive, send)
        await self.proxy.aclose()
        await send({"type": "lifespan.shutdown.complete"})


class Nowhere:
    """What stands behind Needle alone: nothing, said in the API's own words."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """404 for whatever was not answered before."""
        match scope["type"]:
            case "lifespan":
                await _live(receive, send)
                await send({"type": "lifespan.shutdown.complete"})
            case "http":
                message = f"Unknown request URL: {scope['method']} {scope['path']}. There is no upstream to pass it to."
                await send_error(send, NotFound(message))
            case _:
                await refuse_websocket(scope, receive, send)


async def _live(receive: Receive, send: Send) -> None:
    """Answer the start, then wait for the end."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    while (await receive())["type"] != "lifespan.shutdown":
        continue
