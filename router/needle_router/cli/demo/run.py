"""Runs the demo: two servers and a client in one event loop, real HTTP over loopback between them."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn

from needle_router.app import create_app
from needle_router.build import wait_until_loaded
from needle_router.cli.demo.table import Row, closing, heading, table
from needle_router.cli.demo.turns import TURNS, DemoTurn
from needle_router.cli.demo.upstream import MODEL, DemoUpstream
from needle_router.cli.exits import Exit, Stop
from needle_router.cli.listen import listen, url_of
from needle_router.cli.logs import set_up
from needle_router.cli.server import uvicorn_options
from needle_router.config.load import assemble
from needle_router.config.schema import Config, Price
from needle_router.engine.base import EngineState

if TYPE_CHECKING:
    import socket

    from openai import AsyncOpenAI
    from starlette.types import ASGIApp

    from needle_router.middleware import NeedleRouter

#: The demo model's right calls score from about 0.6, where a full Needle's do from about 0.85.
MINIMUM = 0.6
#: USD per million tokens, what a large model costs.
PRICE = Price(input=2.5, cached_input=0.25, output=10.0)
ROUTES = frozenset({"local", "upstream", "merged"})
START_S, TURN_S, STOP_S = 30.0, 30.0, 5.0


def demo(*, keep: bool, port: int) -> Exit:
    """Run it; fails when a turn fails or not all three routes occurred."""
    try:
        import openai  # noqa: F401  # asked for now, used where it is needed
    except ImportError:
        raise Stop(Exit.FAILED, "the demo uses the official client: pip install 'needle-router[demo]'") from None
    set_up("warning")
    router, upstream = listen("127.0.0.1", port), listen("127.0.0.1", 0)
    return anyio.run(_demo, router, upstream, keep)


def demo_config(upstream_url: str) -> Config:
    """The router's configuration; nothing of the user's files or environment takes part."""
    return assemble(
        {
            "upstream.base_url": upstream_url + "/v1",
            "engine.backend": "rust",
            "engine.model": "tiny",
            "policy": ({"kind": "guards"}, {"kind": "threshold", "minimum": MINIMUM}),
            "prices": {MODEL: PRICE},
            "ledger.path": "off",
        }
    )


async def _demo(router_socket: socket.socket, upstream_socket: socket.socket, keep: bool) -> Exit:
    config = demo_config(url_of(upstream_socket))
    router = create_app(config)
    async with serving(DemoUpstream(), upstream_socket, config), serving(router, router_socket, config):
        stop = await until_signal(lambda: shown(router, url_of(router_socket), keep))
    # Raised out here: inside, a task group would wrap it.
    if stop is not None:
        raise stop
    return Exit.OK


async def until_signal(work: Callable[[], Awaitable[Stop | None]]) -> Stop | None:
    """The result of `work`, or None when SIGINT or SIGTERM came first."""
    result: Stop | None = None
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    group.cancel_scope.cancel()

        group.start_soon(watch)
        result = await work()
        group.cancel_scope.cancel()
    return result


async def shown(router: NeedleRouter, url: str, keep: bool) -> Stop | None:
    """Load, send, print; None when all is well."""
    engine = router.services.engine
    if await wait_until_loaded(engine, timeout_s=START_S) is not EngineState.READY:
        return Stop(Exit.ENGINE_MISSING, f"the demo model did not load: {engine.health().detail}")
    print(*heading(url, router.config), sep="\n")
    routes = await send_all(url)
    if isinstance(routes, Stop):
        return routes
    if missing := ROUTES - routes:
        return Stop(Exit.FAILED, f"these routes did not occur: {', '.join(sorted(missing))}")
    if keep:
        print(f"serving on {url} until Ctrl-C:  export OPENAI_BASE_URL={url}/v1", flush=True)
        await anyio.sleep_forever()
    return None


async def send_all(url: str) -> set[str] | Stop:
    """Send every turn, print what became of it and what it saved; the routes that occurred, or why it ended early."""
    import openai

    rows: list[Row] = []
    # A proxy from the environment would be asked for 127.0.0.1.
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="demo", max_retries=0, http_client=http) as client:
        await client.models.list()  # so that the first turn does not pay for imports and connections
        for turn in TURNS:
            try:
                with anyio.fail_after(TURN_S):
                    rows.append(await send(client, turn))
            except (openai.OpenAIError, TimeoutError) as error:
                return Stop(Exit.FAILED, f"the turn {turn.shows!r} failed: {type(error).__name__}: {error}")
        print(*table(rows), sep="\n")
        status = (await http.get(url + "/-/status.json")).json()
    print(*closing(status["totals"], rows), sep="\n", flush=True)
    return {row.route for row in rows}


async def send(client: AsyncOpenAI, turn: DemoTurn) -> Row:
    """One turn through the official client; the milliseconds are those the client waited."""
    started = time.perf_counter()
    body: dict[str, Any] = {"model": MODEL, "messages": turn.messages, **turn.extra}
    raw = await client.chat.completions.with_raw_response.create(**body)
    outcome = await streamed(raw.parse()) if turn.extra.get("stream") else whole(raw.parse())
    waited_ms = (time.perf_counter() - started) * 1000
    headers = raw.headers
    return Row(
        shows=turn.shows,
        text=last_text(turn),
        route=headers["x-needle-route"],
        reason=headers["x-needle-reason"],
        confidence=headers.get("x-needle-confidence", ""),
        waited_ms=waited_ms,
        outcome=outcome.text(),
    )


@dataclass(slots=True)
class Outcome:
    """What a client made of an answer: words, and calls as [name, arguments]."""

    words: str
    calls: list[list[str]]

    def text(self) -> str:
        """On one line."""
        calls = ", ".join(f"{name}({arguments})" for name, arguments in self.calls)
        return " + ".join(part for part in (calls, self.words.strip()) if part)


def whole(completion: Any) -> Outcome:
    """The outcome of a completion."""
    message = completion.choices[0].message
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls or ()]
    return Outcome(message.content or "", calls)


async def streamed(stream: Any) -> Outcome:
    """The outcome of a stream, put together as clients do: by the index of each call."""
    outcome = Outcome("", [])
    async for chunk in stream:
        for choice in chunk.choices:
            outcome.words += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                if piece.index == len(outcome.calls):
                    outcome.calls.append(["", ""])
                outcome.calls[piece.index][0] += piece.function.name or ""
                outcome.calls[piece.index][1] += piece.function.arguments or ""
    return outcome


def last_text(turn: DemoTurn) -> str:
    """What the table shows of a request."""
    last = turn.messages[-1]
    content = last["content"]
    text: str = content if isinstance(content, str) else content[0]["text"]
    return f"(tool) {text}" if last["role"] == "tool" else text


class QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to the demo: two servers in one process cannot both own them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


@asynccontextmanager
async def serving(app: ASGIApp, sock: socket.socket, config: Config) -> AsyncIterator[None]:
    """A server that runs inside the block and has stopped after it."""
    lifespan = "off" if isinstance(app, DemoUpstream) else "on"
    options = uvicorn_options(config) | {"lifespan": lifespan, "timeout_graceful_shutdown": STOP_S}
    server = QuietServer(uvicorn.Config(app, **options))
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve, [sock])
        try:
            with anyio.fail_after(START_S):
                while not server.started:  # noqa: ASYNC110  # uvicorn tells it by this flag alone
                    await anyio.sleep(0.01)
            yield
        finally:
            server.should_exit = True
