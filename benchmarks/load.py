"""A closed-loop load generator: N keep-alive connections, each sends its next request when the answer is complete.

    python benchmarks/load.py HOST:PORT CONNECTIONS SECONDS KIND      (KIND: json, stream or tools)

Prints one JSON object: requests, errors, seconds, and latencies in milliseconds.
"""

import asyncio
import json
import sys
import time

import httptools

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"set_{name}",
            "description": f"Set the {name} of a room",
            "parameters": {
                "type": "object",
                "properties": {"room": {"type": "string"}, "value": {"type": "integer"}},
                "required": ["room", "value"],
            },
        },
    }
    for name in ("light", "heat", "blind", "fan", "volume")
]


def body_of(kind):
    """About 2 KB: a conversation without tools (forwarded unasked), streamed or not, or a tool turn."""
    if kind == "tools":
        body = {"model": "bench", "messages": [{"role": "user", "content": "set the light of the kitchen to 40"}]}
        body["tools"] = TOOLS
    else:
        filler = [{"role": "user", "content": "word " * 110}, {"role": "assistant", "content": "word " * 110}]
        body = {"model": "bench", "messages": [*filler, {"role": "user", "content": "word " * 140}]}
    if kind == "stream":
        body["stream"] = True
    return json.dumps(body, separators=(",", ":")).encode()


class Client(asyncio.Protocol):
    def __init__(self, request, results, until):
        self.request, self.results, self.until = request, results, until
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.send()

    def send(self):
        self.parser = httptools.HttpResponseParser(self)
        self.started = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_message_complete(self):
        self.results["ms"].append((time.perf_counter() - self.started) * 1000)
        self.results["errors"] += self.parser.get_status_code() != 200
        if time.perf_counter() < self.until:
            asyncio.get_running_loop().call_soon(self.send)
        else:
            self.transport.close()

    def connection_lost(self, exc):
        if not self.closed.done():
            self.closed.set_result(None)


async def run(host, port, connections, seconds, kind):
    body = body_of(kind)
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer sk-bench\r\naccept: application/json\r\nuser-agent: bench\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    results = {"ms": [], "errors": 0}
    started = time.perf_counter()
    until = started + seconds
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: Client(request, results, until), host, port))[1]
        for _ in range(connections)
    ]
    await asyncio.wait_for(asyncio.gather(*(client.closed for client in clients)), seconds + 30)
    times = sorted(results["ms"])
    at = lambda share: round(times[min(len(times) - 1, int(len(times) * share))], 3)  # noqa: E731
    return {
        "requests": len(times),
        "errors": results["errors"],
        "seconds": round(time.perf_counter() - started, 3),
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
    }


if __name__ == "__main__":
    import uvloop

    address, connections, seconds, kind = sys.argv[1:]
    host, port = address.split(":")
    print(json.dumps(uvloop.run(run(host, int(port), int(connections), float(seconds), kind))))
