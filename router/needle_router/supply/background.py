"""An engine that fetches what it lacks, behind the open port.

The router starts, passes everything on, and meanwhile another process pulls the model; when that is there, the pool is
told to try again. A hub that cannot be reached costs one log line and is asked again, ever later. What was refused
(other bytes than those recorded) is not asked for again: that needs a person.

Another process, because the download is then ended by a kill when the router stops, its memory is given back, and the
hub's client stays out of the process that holds the users' keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import fnmatch
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from needle_router.engine.archives import model_to_pull
from needle_router.engine.base import Engine, EngineHealth, EngineState
from needle_router.engine.child import SOURCE_ROOT
from needle_router.engine.environ import FIXED, scrubbed
from needle_router.engine.pool import EnginePool
from needle_router.supply.run import read_result
from needle_router.task import EngineOutcome, Task

log = logging.getLogger(__name__)

LAUNCH = "import sys; sys.path.append(sys.argv[1]); from needle_router.supply.run import main; main()"
FIRST_DELAY_S = 30.0
LONGEST_DELAY_S = 1800.0
FETCH_DEADLINE_S = 3600.0
POLL_S = 0.1
#: How long fetched files may take to load before they are looked for again.
LOADING_S = 60.0
#: Beside what an engine process may know: how to reach the hub.
ALLOWED = ("HF_*", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
TRUE = ("1", "ON", "YES", "TRUE")

#: model -> {"ok", "again", "detail"}
Fetch = Callable[[str], Awaitable[Mapping[str, Any]]]


class SuppliedEngine:
    """An engine pool whose missing files are fetched by `fetch`. `first_delay_s` is the pause after a first failure."""

    def __init__(self, pool: EnginePool, fetch: Fetch, *, first_delay_s: float = FIRST_DELAY_S) -> None:
        self._pool = pool
        self._fetch = fetch
        self._first_delay_s = first_delay_s
        self._task: asyncio.Task[None] | None = None
        self._fetching = False
        self._note = ""

    async def start(self) -> None:
        """Start the pool, and the watch over what it lacks."""
        if self._task is not None:
            return
        await self._pool.start()
        # Like the pool's own task: no block can own it, because a request may have called; aclose() ends it.
        self._task = asyncio.get_running_loop().create_task(
            self._supply(), name="needle-supply", context=contextvars.Context()
        )

    async def complete(self, task: Task, *, deadline_s: float) -> EngineOutcome:
        """Run `task` in the pool."""
        return await self._pool.complete(task, deadline_s=deadline_s)

    async def aclose(self) -> None:
        """End the fetch and every worker."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await self._pool.aclose()

    def health(self) -> EngineHealth:
        """That of the pool; loading while the model is being fetched."""
        health = self._pool.health()
        if health.state is not EngineState.FAILED:
            return health
        if self._fetching:
            detail = f"{health.model} is being fetched from the model hub"
            return dataclasses.replace(health, state=EngineState.LOADING, detail=detail)
        return dataclasses.replace(health, detail=self._note) if self._note else health

    async def _supply(self) -> None:
        try:
            await self._until_supplied()
        except Exception:
            # A fault of ours must not end the server; the engine stays failed, with the reason of its own.
            log.exception("fetching the engine stopped")

    async def _until_supplied(self) -> None:
        delay_s = self._first_delay_s
        while (model := await self._lacking()) is not None:
            result = await self._fetched(model)
            if result["ok"]:
                log.info("%s", result["detail"])
                self._pool.retry()
                await self._pause(LOADING_S, model)
            elif result["again"]:
                log.warning("%s was not fetched, next try in %g s: %s", model, delay_s, result["detail"])
                await self._pause(delay_s, model)
            else:
                log.error("%s was not fetched: %s", model, result["detail"])
                return
            delay_s = min(2 * delay_s, LONGEST_DELAY_S)

    async def _fetched(self, model: str) -> Mapping[str, Any]:
        self._fetching = True
        try:
            result = await self._fetch(model)
        finally:
            self._fetching = False
        self._note = "" if result["ok"] else f"{model} was not fetched: {result['detail']}"
        return result

    async def _lacking(self) -> str | None:
        """The model to fetch; None when there is nothing to do (any more). Returns once the pool has tried to load."""
        while (health := self._pool.health()).state is EngineState.LOADING:  # noqa: ASYNC110  # the pool has no event
            await asyncio.sleep(POLL_S)
        return model_to_pull(health.detail) if health.state is EngineState.FAILED else None

    async def _pause(self, delay_s: float, model: str) -> None:
        """Wait, but no longer than the model is lacking: somebody else may have fetched it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                while model_to_pull(self._pool.health().detail) == model:  # noqa: ASYNC110  # the pool has no event
                    await asyncio.sleep(POLL_S)


def supplied(engine: Engine, environ: Mapping[str, str], *, auto_pull: bool) -> Engine:
    """`engine`, fetching what it lacks where that is wanted and the hub may be asked."""
    if not (auto_pull and isinstance(engine, EnginePool)) or environ.get("HF_HUB_OFFLINE", "").upper() in TRUE:
        return engine

    async def fetch(model: str) -> Mapping[str, Any]:
        return await fetch_in_process(model, engine.health().backend, environ)

    return SuppliedEngine(engine, fetch)


async def fetch_in_process(model: str, backend: str, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Run one pull in a process of its own; its log lines go to our standard error."""
    level = str(logging.getLogger().getEffectiveLevel())
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-c", LAUNCH, SOURCE_ROOT, model, backend, level),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=fetch_environ(environ),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(FETCH_DEADLINE_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return {"ok": False, "again": True, "detail": f"the download took longer than {FETCH_DEADLINE_S:g} s"}
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return read_result(output)


def fetch_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the fetching process: no key but that of the hub."""
    kept = {name: value for name, value in scrubbed(environ).items() if name not in FIXED}
    hub = {name: value for name, value in environ.items() if any(fnmatch.fnmatch(name.upper(), p) for p in ALLOWED)}
    return kept | hub
