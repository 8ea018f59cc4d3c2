"""The whole router between a raw client and an upstream that answers by a plan, in one event loop that tests step."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
from tests.router.support import config_for
from tests.servers import (
    DEADLINE_S,
    Answered,
    Client,
    Pair,
    Peer,
    Recorded,
    RecordingUpstream,
    Script,
    connected,
    free_port,
    recording,
    serving,
    until,
)

from needle_router import create_app
from needle_router.cli.strict import StrictProtocol
from needle_router.cli.strict_gate import Gate
from needle_router.engine.base import EngineState
from needle_router.middleware import NeedleRouter

#: An engine that is never sure, so that every turn goes on to the upstream.
UNSURE = {"envelopes": [{"type": "respond", "success": True, "function_calls": [], "confidence": 0.1}]}


@dataclass
class Whole:
    """Where the router listens, itself, and what stands behind it."""

    url: str
    router: NeedleRouter
    upstream: RecordingUpstream


@contextlib.asynccontextmanager
async def whole_router(
    folder: Path, *answers: Script, script=None, server=None, merge=None, mode="on", **upstream_settings
) -> AsyncIterator[Whole]:
    """A router as `serve` sets it up, with the engine ready, in front of a recording upstream."""
    async with recording(*answers) as upstream:
        sections = {"server": server or {}, "merge": merge or {}, "mode": mode}
        config = config_for(folder, script or UNSURE, upstream=f"{upstream.base_url}/v1", **sections)
        changed = msgspec.structs.replace(config.upstream, **upstream_settings)
        router = create_app(msgspec.structs.replace(config, upstream=changed))
        protocol = functools.partial(StrictProtocol, gate=Gate(router.config.server))
        async with serving(router, lifespan="on", http=protocol, ws="none") as url:
            await until(lambda: router.services.engine.health().state is not EngineState.LOADING)
            yield Whole(url, router, upstream)


class Plan:
    """What the upstream writes next: pieces that go out as packets of their own, and whether it then closes."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.close = False

    async def __call__(self, _: Recorded, peer: Peer) -> None:
        """Answer one request."""
        for piece in self.pieces:
            await peer.write(piece)
            await asyncio.sleep(0)
        if self.close:
            peer.close()


class Stepped:
    """Everything above for tests that are no coroutines: the loop runs while one exchange is under way."""

    def __init__(self, runner: asyncio.Runner, whole: Whole, plan: Plan) -> None:
        self._runner, self.whole, self.plan = runner, whole, plan

    def exchange(self, packets: list[bytes], method: bytes) -> tuple[Recorded, Answered]:
        """Send the packets of one request; what the upstream saw and what came back."""
        return self._runner.run(self._exchange(packets, method))

    async def _exchange(self, packets: list[bytes], method: bytes) -> tuple[Recorded, Answered]:
        self.whole.upstream.requests.clear()
        async with connected(self.whole.url) as client:
            for packet in packets:
                await client.write(packet)
                await asyncio.sleep(0)
            got = await client.read(method)
        [seen] = self.whole.upstream.requests
        return seen, got


@contextlib.contextmanager
def stepped(folder: Path) -> Iterator[Stepped]:
    """One router and one upstream for as many exchanges as a test likes."""
    with asyncio.Runner() as runner:
        stack, plan = contextlib.AsyncExitStack(), Plan()
        whole = runner.run(stack.enter_async_context(whole_router(folder, plan)))
        try:
            yield Stepped(runner, whole, plan)
        finally:
            runner.run(stack.aclose())


def end_to_end(headers: list[Pair], *added: bytes) -> list[Pair]:
    """The fields without those of the framing and without the ones that the router documents as its own."""
    ours = {b"content-length", b"transfer-encoding", b"connection", *added}
    return [(n, v) for n, v in headers if n.lower() not in ours and not n.lower().startswith(b"x-needle-")]


# ------------------------------------------------------------------------------------------------- as a process

CONFIG = """
[server]
port = {port}
log_level = "debug"
{server}
[upstream]
base_url = "{base}/v1"
connect_timeout_s = 1
{upstream}
[engine]
backend = "scripted"
script = "{script}"
[ledger]
path = "{ledger}"
{tail}
"""


@dataclass
class Served:
    """A router in a process of its own; its standard error goes to `log`."""

    url: str
    process: asyncio.subprocess.Process
    log: Path

    def rss_bytes(self) -> int:
        """Resident memory of the router, without its engine."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


@contextlib.asynccontextmanager
async def served(
    folder: Path, base: str, script: str, *, ledger="off", server="", upstream="", tail=""
) -> AsyncIterator[Served]:
    """`needle-router serve` with the engine ready; killed at the end if it still runs."""
    port = free_port()
    (folder / "script.json").write_text(script)
    config = folder / "needle-router.toml"
    parts = {"port": port, "server": server, "base": base, "upstream": upstream, "tail": tail, "ledger": ledger}
    config.write_text(CONFIG.format(script=folder / "script.json", **parts))
    log = folder / "stderr.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "faulthandler", "-m", "needle_router", "serve", "--config", str(config)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=out,
            stderr=out,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await _ready(url, process)
        yield Served(url, process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ready(url: str, process: asyncio.subprocess.Process) -> None:
    async with httpx.AsyncClient() as http, asyncio.timeout(2 * DEADLINE_S):
        while process.returncode is None:
            with contextlib.suppress(httpx.TransportError):
                if (await http.get(f"{url}/readyz")).json()["engine"]["state"] == "ready":
                    return
            await asyncio.sleep(0.05)
    raise RuntimeError("the router ended before it was ready")


async def read_slowly(client: Client, *, bytes_a_read: int, reads: int, pause_s: float) -> int:
    """Read a little, now and then; the bytes that were read."""
    total = 0
    for _ in range(reads):
        total += len(await client.reader.read(bytes_a_read))
        await asyncio.sleep(pause_s)
    return total
