"""The uvicorn server under `serve` and `demo`: how it is set up and how it ends.

One worker, because the engine pool is the parallelism. httptools, because it refuses requests that carry both
Content-Length and Transfer-Encoding, which h11 passes on (request smuggling).
"""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from needle_router.cli.last_words import LastWords
from needle_router.cli.listen import BACKLOG
from needle_router.cli.strict import StrictProtocol
from needle_router.cli.strict_gate import Gate
from needle_router.config.schema import Config

if TYPE_CHECKING:
    from needle_router.cli.reload import Reloading
    from needle_router.middleware import NeedleRouter


class Server(uvicorn.Server):
    """uvicorn with two changes in how it ends.

    The first SIGTERM or SIGINT drains: after `server.drain_delay_s`, in which /readyz says 503 and requests are still
    taken, running answers finish, up to `server.drain_timeout_s`. The second, of either
    kind, ends at once. A drained server has done what it was asked to, so its exit code is 0, where uvicorn would raise
    the signal again (143).
    """

    def __init__(self, router: NeedleRouter | Reloading, config: Config) -> None:
        self.gate = Gate(config.server)
        super().__init__(uvicorn.Config(LastWords(router), **uvicorn_options(config, self.gate)))
        self.router = router
        self._delay_s = config.server.drain_delay_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and from then on let SIGHUP reload."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self.gate.on_loop_error)
        await super().startup(sockets)
        ask = getattr(self.router, "ask", None)
        if ask is not None and hasattr(signal, "SIGHUP"):
            self._loop.add_signal_handler(signal.SIGHUP, ask)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the signal handler."""
        if self._draining:
            self.should_exit = self.force_exit = True
            return
        self._draining = True
        self.router.begin_drain()
        if self._delay_s and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, self._delay_s, self._close)
        else:
            self._close()

    def _close(self) -> None:
        """Take no more connections, and end with the last answer."""
        self.should_exit = True


def uvicorn_options(config: Config, gate: Gate | None = None) -> dict[str, Any]:
    """Everything uvicorn is told; `gate` keeps the server's connections, by default a new one."""
    return {
        "loop": "auto",  # uvloop where it is installed
        "http": functools.partial(StrictProtocol, gate=gate or Gate(config.server)),
        # A WebSocket upgrade is then answered as the plain GET that it also is; clients fall back on that.
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        # Both would be put beside those of the upstream.
        "date_header": False,
        "server_header": False,
        # X-Forwarded-* from anybody would otherwise change what the router believes of its client.
        "proxy_headers": False,
        "backlog": BACKLOG,
        "timeout_graceful_shutdown": config.server.drain_timeout_s,
    }
