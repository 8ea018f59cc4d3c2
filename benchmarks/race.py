"""How soon an upstream is let go: by a race that it lost, and by clients that leave a race or a merged answer.

    python benchmarks/race.py [--runs 30]

The real command with a scripted engine, in front of an upstream on loopback that answers nothing, or the beginning of a
stream. Measured at the upstream's socket: from the client's last byte (a lost race) or from its hanging up, to the end
of the upstream's connection.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import proxies

CALL = {"name": "set_light", "arguments": {"room": "kitchen", "on": True}}
ENVELOPE = {"type": "call", "success": True, "function_calls": [CALL], "confidence": 0.97}
PROPERTIES = {"room": {"type": "string"}, "on": {"type": "boolean"}}
TOOL = {
    "type": "function",
    "function": {"name": "set_light", "parameters": {"type": "object", "properties": PROPERTIES}},
}
TEXT = "turn on the kitchen light"
DELTA = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}]}
EVENT = b"data: %b\n\n" % json.dumps(DELTA).encode()
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n"
#: The engine's delay in ms, whether the upstream begins to answer, the text, whether the client leaves.
CASES = {
    "race won by the engine": (0, False, TEXT, False),
    "client leaves a race before any answer": (2000, False, TEXT, True),
    "client leaves the upstream's answer of a race": (2000, True, TEXT, True),
    "client leaves a merged answer before its words": (0, False, f"{TEXT} and tell me a joke", True),
    "client leaves a merged answer in its words": (0, True, f"{TEXT} and tell me a joke", True),
}
CONFIG = """[engine]
backend = "scripted"
script = {script}
[[policy]]
kind = "guards"
[[policy]]
kind = "race"
[[policy]]
kind = "threshold"
minimum = 0.7
"""


class Upstream:
    """Reads a request, answers with the beginning of a stream or with nothing, and notes when it is hung up on."""

    def __init__(self, begins):
        self.begins, self.asked, self.closed_s = begins, asyncio.Event(), asyncio.Queue()

    async def serve(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if self.begins:
            # Late enough for the engine to be first where it is quick.
            await asyncio.sleep(0.1)
            writer.write(STREAM % (len(EVENT), EVENT))
        self.asked.set()
        while await reader.read(65536):
            continue
        self.closed_s.put_nowait(time.perf_counter())
        writer.close()


async def once(port, upstream, text, leaves):
    """Milliseconds until the upstream was let go."""
    upstream.asked.clear()
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": "m", "messages": messages, "tools": [TOOL], "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    writer.write(head % len(body) + body)
    if leaves:
        await upstream.asked.wait()
        if upstream.begins:
            await reader.readuntil(b'"content":')
        await asyncio.sleep(0.05)
    else:
        await reader.readuntil(b"[DONE]")
    since = time.perf_counter()
    writer.transport.abort()
    return (await asyncio.wait_for(upstream.closed_s.get(), 10) - since) * 1000


async def measured(case, runs):
    delay_ms, begins, text, leaves = CASES[case]
    upstream = Upstream(begins)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"envelopes": [ENVELOPE], "delay_ms": delay_ms}))
        config = CONFIG.format(script=json.dumps(str(script)))
        with proxies.router(server.sockets[0].getsockname()[1], config) as router:
            await ready(router.port)
            found = [await once(router.port, upstream, text, leaves) for _ in range(runs)]
    server.close()
    return found


async def ready(port):
    """Wait until the engine is loaded."""
    for _ in range(200):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        if b'"state":"ready"' in await reader.read():
            return
        await asyncio.sleep(0.05)
    raise SystemExit("the engine did not load")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    runs = parser.parse_args().runs
    for case in CASES:
        times = asyncio.run(measured(case, runs))
        print(f"{case}: upstream closed after {statistics.median(times):.1f} ms, at most {max(times):.1f} ms")


if __name__ == "__main__":
    main()
