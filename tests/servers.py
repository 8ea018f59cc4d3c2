"""Real servers on loopback for tests: uvicorn around any app, a recording upstream, a client that counts bytes.

Everything runs in the test's own event loop, on ports the system chooses; every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import uvicorn

DEADLINE_S = 10.0
Pair = tuple[bytes, bytes]


@contextlib.asynccontextmanager
async def serving(app, *, port: int = 0, **options) -> AsyncIterator[str]:
    """`app` behind uvicorn, on a free port unless one is named; gives its base URL. `options` go to uvicorn.Config."""
    # With the protocol named, asyncio switches Nagle's algorithm off, as `serve` has it; else an answer in two writes
    # waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    settings = {
        "log_level": "critical",
        "access_log": False,
        "date_header": False,
        "server_header": False,
        "ws": "websockets-sansio",
        "timeout_graceful_shutdown": 1,
    }
    config = uvicorn.Config(app, **{**settings, **options})
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # `serve` would do the same and wait in ticks of 0.1 s, with signal handlers of its own.
    await server.startup(sockets=[listener])
    if server.should_exit:
        raise RuntimeError("the app's start-up failed")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await server.shutdown(sockets=[listener])


async def until(condition: Callable[[], object], *, deadline_s: float = DEADLINE_S) -> None:
    """Wait for `condition()` to hold; raises TimeoutError when it never does."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.002)


def address(base_url: str) -> tuple[str, int]:
    """Host and port of a base URL."""
    host, port = base_url.removeprefix("http://").split("/")[0].split(":")
    return host, int(port)


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ------------------------------------------------------------------------------------------------- messages


@dataclass(frozen=True)
class Recorded:
    """A request as it stood on the wire."""

    method: bytes
    target: bytes
    headers: list[Pair]
    body: bytes
    connection: int

    def values(self, name: bytes) -> list[bytes]:
        """Every value of a field, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass(frozen=True)
class Answered:
    """An answer as it stood on the wire; `clean` is False when it broke off before its end."""

    status: int
    headers: list[Pair]
    body: bytes
    clean: bool
    pieces: list[bytes] = field(default_factory=list)

    def values(self, name: bytes) -> list[bytes]:
        """Every value of a field, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


async def read_head(reader: asyncio.StreamReader) -> tuple[bytes, list[Pair]]:
    """First line and fields of a message, with not a byte changed but the blank around a value."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    pairs = [line.split(b":", 1) for line in lines]
    return first, [(name, value.strip(b" \t")) for name, value in pairs]


async def chunked(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The chunks of a chunked body; raises IncompleteReadError when it breaks off."""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                continue
            return
        chunk = await reader.readexactly(size)
        await reader.readexactly(2)
        yield chunk


def value_of(headers: list[Pair], name: bytes) -> bytes | None:
    """The first value of a field."""
    return next((value for key, value in headers if key.lower() == name), None)


# ------------------------------------------------------------------------------------------ recording upstream


class Peer:
    """The upstream's end of one connection, for answers that do something odd."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """End the connection with FIN."""
        self.writer.close()

    async def gone(self, *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until the other side has closed."""
        async with asyncio.timeout(deadline_s):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    continue


Script = bytes | Callable[[Recorded, Peer], Awaitable[None]]


def answer(status: int = 200, body: bytes = b"{}", *headers: Pair) -> bytes:
    """An HTTP/1.1 answer with a content-length."""
    fields = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n%b\r\n%b" % (status, len(body), fields, body)


class RecordingUpstream:
    """Records each request byte for byte and answers by a script.

    `answers` are used in turn, the last one repeats: bytes go out as they are, a callable may do as it likes with the
    connection. `ended` counts the connections that are over, `opened` all of them.
    """

    def __init__(self, *answers: Script) -> None:
        self.answers: list[Script] = list(answers) or [answer()]
        self.requests: list[Recorded] = []
        self.opened = 0
        self.ended = 0
        self.base_url = ""
        self.keep_alive = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.opened += 1
        number = self.opened
        try:
            while await self._exchange(reader, writer, number):
                continue
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended += 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        first, headers = await read_head(reader)
        method, target, _ = first.split(b" ")
        if (value_of(headers, b"transfer-encoding") or b"").lower() == b"chunked":
            body = b"".join([chunk async for chunk in chunked(reader)])
        else:
            body = await reader.readexactly(int(value_of(headers, b"content-length") or 0))
        recorded = Recorded(method, target, headers, body, number)
        self.requests.append(recorded)
        script = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(script, bytes):
            writer.write(script)
            await writer.drain()
        else:
            await script(recorded, Peer(reader, writer))
        return self.keep_alive and not writer.is_closing()


@contextlib.asynccontextmanager
async def recording(*answers: Script) -> AsyncIterator[RecordingUpstream]:
    """A `RecordingUpstream` that listens."""
    upstream = RecordingUpstream(*answers)
    tasks: set[asyncio.Task[None]] = set()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await upstream.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=1 << 20)
    host, port = server.sockets[0].getsockname()
    upstream.base_url = f"http://{host}:{port}"
    try:
        yield upstream
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await until(lambda: not tasks)


# ----------------------------------------------------------------------------------------------------- client


class Client:
    """One connection to a server, on which requests are written as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, list[Pair]]:
        """Status and fields of the next answer that is not interim."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                first, headers = await read_head(self.reader)
                status = int(first.split(b" ")[1])
                if status >= 200:
                    return status, headers

    async def read(self, method: bytes = b"GET") -> Answered:
        """The next answer, to its end."""
        status, headers = await self.head()
        pieces: list[bytes] = []
        clean = True
        async with asyncio.timeout(DEADLINE_S):
            try:
                if method == b"HEAD" or status in (204, 304):
                    pass
                elif value_of(headers, b"transfer-encoding") == b"chunked":
                    async for chunk in chunked(self.reader):
                        pieces.append(chunk)  # noqa: PERF401  # what came before a cut is kept
                elif (length := value_of(headers, b"content-length")) is not None:
                    pieces.append(await self.reader.readexactly(int(length)))
                else:
                    pieces.append(await self.reader.read())
            except asyncio.IncompleteReadError as error:
                clean = False
                pieces.append(error.partial)
            except ConnectionError:
                clean = False
        return Answered(status, headers, b"".join(pieces), clean, pieces)

    async def ask(self, request: bytes) -> Answered:
        """Write a request and read its answer."""
        await self.write(request)
        return await self.read(request.split(b" ", 1)[0])

    def close(self) -> None:
        """Close at once."""
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def connected(base_url: str) -> AsyncIterator[Client]:
    """A `Client` of `base_url`."""
    reader, writer = await asyncio.open_connection(*address(base_url), limit=1 << 20)
    client = Client(reader, writer)
    try:
        yield client
    finally:
        client.close()


async def ask(base_url: str, request: bytes) -> Answered:
    """One request on a connection of its own."""
    async with connected(base_url) as client:
        return await client.ask(request)


def request(method: bytes, target: bytes, *headers: Pair, body: bytes | None = None) -> bytes:
    """An HTTP/1.1 request with Host, and a content-length where there is a body."""
    fields = [(b"host", b"router.test"), *headers]
    if body is not None:
        fields.append((b"content-length", b"%d" % len(body)))
    lines = b"".join(b"%b: %b\r\n" % pair for pair in fields)
    return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (method, target, lines, body or b"")
