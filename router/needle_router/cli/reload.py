"""SIGHUP: take up a changed configuration, or changed certificates, without dropping a request.

What cannot be used leaves everything as it is. A good configuration makes a second router beside the first; when
its engine is ready (or has failed, as the old one could too) new requests go to it, and the first is closed once its
last request is done. What the server itself was started with, where to listen and what a connection may cost, stays
until a restart; a change of it is told in one line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
from starlette.types import Message, Receive, Scope, Send

from needle_router.app import create_app
from needle_router.build import wait_until_loaded
from needle_router.config.certificates import certificates_of
from needle_router.config.checks import check
from needle_router.config.schema import Config, Server
from needle_router.errors import ConfigError
from needle_router.middleware import NeedleRouter

logger = logging.getLogger("needle_router.reload")
#: How long a new engine may load before requests go to the new router all the same.
LOAD_WAIT_S = 30.0
#: Keys of [server] that are read at the start only.
AT_START = (
    "host port drain_delay_s drain_timeout_s header_timeout_s body_timeout_s write_timeout_s idle_timeout_s "
    "max_header_kb max_headers max_url_kb max_connections log_level"
).split()


def settled(config: Config, running: Server) -> tuple[Config, list[str]]:
    """The configuration as it can be used by a server that was started as `running`, and the keys it leaves aside.

    Raises `ConfigError` where the rest does not fit what stays: no router keys, say, where others can reach the port.
    """
    kept = {name: getattr(running, name) for name in AT_START}
    left = [f"server.{name}" for name, value in kept.items() if getattr(config.server, name) != value]
    usable = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, **kept))
    problems = check(usable) if left else []
    if problems:
        raise ConfigError([f"{line} (a restart is needed for {', '.join(left)})" for line in problems])
    return usable, left


class Generation:
    """One router and the requests that are inside it."""

    def __init__(self, router: NeedleRouter) -> None:
        self.router = router
        self.running = 0
        self.idle = asyncio.Event()
        self.idle.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        self.running += 1
        self.idle.clear()
        try:
            await self.router(scope, receive, send)
        finally:
            self.running -= 1
            if not self.running:
                self.idle.set()


class Reloading:
    """An ASGI app that is always the newest router; `load` reads the configuration anew."""

    def __init__(self, config: Config, load: Callable[[], Config]) -> None:
        self._load = load
        self._current: Generation | None = None
        self._config = config
        self._certificates = certificates_of(config)
        self._asked = asyncio.Event()
        self._first = create_app(config)

    @property
    def router(self) -> NeedleRouter:
        """The router that takes new requests."""
        return self._first if self._current is None else self._current.router

    def begin_drain(self) -> None:
        """Pass the word to the current router."""
        self.router.begin_drain()

    def ask(self) -> None:
        """A reload is wanted; may be called by a signal handler."""
        self._asked.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Requests go to the newest router; the server's lifespan is ours."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._generation()(scope, receive, send)

    def _generation(self) -> Generation:
        if self._current is None:
            self._current = Generation(self._first)
        return self._current

    async def _live(self, receive: Receive, send: Send) -> None:
        message: Message = await receive()
        assert message["type"] == "lifespan.startup"
        await self._generation().router.start()
        async with asyncio.TaskGroup() as group:
            reloader = group.create_task(self._reloads(group))
            await send({"type": "lifespan.startup.complete"})
            while (await receive())["type"] != "lifespan.shutdown":
                continue
            reloader.cancel()
            await self._generation().router.aclose()
            await send({"type": "lifespan.shutdown.complete"})

    async def _reloads(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            self.router.services.standings.take_resets()
            try:
                old = await self._replaced()
            except ConfigError as error:
                logger.error("the new configuration is not used, the old one stays: %s", "; ".join(error.problems))
            except Exception:
                logger.exception("the reload failed, the old configuration stays")
            else:
                if old is not None:
                    group.create_task(self._retire(old))

    async def _replaced(self) -> Generation | None:
        """Put a new generation in place and return the old one; None when nothing has changed."""
        config, left = settled(await asyncio.to_thread(self._load), self._config.server)
        certificates = await asyncio.to_thread(certificates_of, config)
        if left:
            logger.warning("kept as they were until a restart: %s", ", ".join(left))
        if (config, certificates) == (self._config, self._certificates):
            logger.info("nothing else has changed" if left else "the configuration has not changed")
            return None
        old = self._generation()
        router = create_app(config)
        router.adopt(old.router)
        await router.start()
        await wait_until_loaded(router.services.engine, timeout_s=LOAD_WAIT_S)
        self._current, self._config, self._certificates = Generation(router), config, certificates
        logger.info("the new configuration is in use")
        return old

    @staticmethod
    async def _retire(old: Generation) -> None:
        await old.idle.wait()
        await old.router.aclose()
