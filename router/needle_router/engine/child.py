"""One engine process as the router sees it: started with a clean environment, spoken to over a socket pair, killed.

The pipe is an asyncio transport with a protocol, so neither reading nor writing ever blocks the event loop; one task is
under way at a time, so what it buffers is one frame. The process leads a group of its own: a kill takes along what a
library may have started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import needle_router
from needle_router.engine.environ import scrubbed
from needle_router.engine.frames import FrameDecoder, FrameError, encode
from needle_router.engine.messages import Setup
from needle_router.engine.session import LoadFailed

#: `-P`: nothing is imported from the working directory. The package's root goes last, where it shadows nothing.
LAUNCH = "import sys; sys.path.append(sys.argv[1]); from needle_router.engine.worker import main; main()"
SOURCE_ROOT = str(Path(needle_router.__file__).resolve().parent.parent)
REAP_DEADLINE_S = 5.0
REAP_INTERVAL_S = 0.002


class ChildDied(Exception):
    """The process ended, or its pipe can no longer be trusted."""


class Child:
    """A running engine process. `on_change` is called when it has said something or died."""

    def __init__(self, process: subprocess.Popen[bytes], on_change: Callable[[], None]) -> None:
        self._process = process
        self._on_change = on_change
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._expected: asyncio.Future[dict[str, Any]] | None = None
        self.alive = True

    @classmethod
    async def spawn(cls, setup: Setup, environ: Mapping[str, str], on_change: Callable[[], None]) -> Child:
        """Start a process and send it its setup. Raises OSError when no process can be had."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                child = cls(_popen(theirs, environ), on_change)
            ours.setblocking(False)
            await child._connect(ours)
        except BaseException:
            ours.close()
            raise
        child._write(encode(setup.message()))
        return child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def ready(self, timeout_s: float) -> int:
        """Wait until the library is loaded; the resident size in bytes.

        Raises LoadFailed with the child's reason, ChildDied, or TimeoutError.
        """
        async with asyncio.timeout(timeout_s):
            message = await self._next()
        if message.get("kind") == "failed":
            raise LoadFailed(message["detail"])
        return int(message["rss_bytes"])

    async def ask(self, frame: bytes, number: int, *, until: float) -> dict[str, Any]:
        """Send one task and wait for its answer until the loop's time is `until`. Raises ChildDied or TimeoutError."""
        if not self.alive:
            raise ChildDied("the engine process is gone")
        self._write(frame)
        async with asyncio.timeout_at(until):
            message = await self._next()
        if message.get("id") != number:
            raise ChildDied("the engine process answered another task")
        return message

    def kill(self) -> None:
        """End the process and everything it started, at once."""
        self._lose()
        if self._transport is not None:
            self._transport.abort()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def reap(self) -> None:
        """Kill, and wait until the process is gone: no zombie is left behind, not even when this is cancelled."""
        self.kill()
        deadline = asyncio.get_running_loop().time() + REAP_DEADLINE_S
        try:
            # Polled, because child watchers differ between event loops and need a signal handler in some.
            while self._process.poll() is None and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(REAP_INTERVAL_S)
        except asyncio.CancelledError:
            self._reap_now()
            raise

    def _reap_now(self) -> None:
        # The kill is on its way: this takes a millisecond, and the pool is being closed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=REAP_DEADLINE_S)

    async def _connect(self, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_unix_connection(lambda: _Pipe(self), sock=ours)
        self._transport = transport

    def _write(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    async def _next(self) -> dict[str, Any]:
        if not self.alive:
            raise ChildDied("the engine process is gone")
        self._expected = asyncio.get_running_loop().create_future()
        try:
            return await self._expected
        finally:
            self._expected = None

    def _heard(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                if self._expected is not None and not self._expected.done():
                    self._expected.set_result(message)
        except FrameError:
            self._lose()

    def _lose(self) -> None:
        """From now on the child is of no use."""
        if not self.alive:
            return
        self.alive = False
        if self._expected is not None and not self._expected.done():
            self._expected.set_exception(ChildDied("the engine process died"))
        self._on_change()


class _Pipe(asyncio.Protocol):
    """Passes what a transport delivers to its child."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def data_received(self, data: bytes) -> None:
        self._child._heard(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._child._lose()


def _popen(pipe: socket.socket, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # Started from the loop's own thread: the kernel's parent-death signal is bound to the thread that starts a child.
    return subprocess.Popen(  # noqa: S603  # our own interpreter and a constant text
        [sys.executable, "-P", "-c", LAUNCH, SOURCE_ROOT],
        stdin=pipe.fileno(),
        stdout=pipe.fileno(),
        env=scrubbed(environ),
        close_fds=True,
        start_new_session=True,
    )
