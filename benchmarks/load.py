"""A closed-loop load generator: N keep-alive connections, each sends its next request when the answer is complete.

    python benchmarks/load.py HOST:PORT CONNECTIONS SECONDS KIND [NAME:VALUE ...]      (KIND: see `body_of`)

NAME:VALUE are more header fields. Prints one JSON object: requests, errors, seconds, latencies in milliseconds, and of
streams the time to the first event and, where chunks carry the time at which they left, how long they were under way.
"""

import asyncio
import json
import re
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
STREAMED = ("stream", "paced")
MODELS = {"slow": "bench-slow", "paced": "bench-paced"}
STAMP = re.compile(rb'"t(\d{6,})"')


def body_of(kind):
    """About 2 KB. `json`: a conversation without tools. `other`: the same on a path that is no chat completion.

    `tools`: a tool turn. `slow`: the upstream takes a second. `stream`: 50 chunks as fast as they come. `paced`: 50
    chunks one by one, each with the time at which it left.
    """
    if kind == "tools":
        body = {"model": "bench", "messages": [{"role": "user", "content": "set the light of the kitchen to 40"}]}
        body["tools"] = TOOLS
    else:
        filler = [{"role": "user", "content": "word " * 110}, {"role": "assistant", "content": "word " * 110}]
        body = {
            "model": MODELS.get(kind, "bench"),
            "messages": [*filler, {"role": "user", "content": "word " * 140}],
        }
    if kind in STREAMED:
        body["stream"] = True
    return json.dumps(body, separators=(",", ":")).encode()


def request_of(kind, fields=()):
    body = body_of(kind)
    path = b"/v1/responses" if kind == "other" else b"/v1/chat/completions"
    head = (
        b"POST %b HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nauthorization: Bearer sk-bench\r\n"
        b"accept: application/json\r\nuser-agent: bench\r\ncontent-length: %d\r\n" % (path, len(body))
    )
    return head + b"".join(field.encode().replace(b":", b": ", 1) + b"\r\n" for field in fields) + b"\r\n" + body


class Client(asyncio.Protocol):
    """One connection; `results` is shared by all of them."""

    def __init__(self, request, results, until):
        self.request, self.results, self.until = request, results, until
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.send()

    def send(self):
        self.parser = httptools.HttpResponseParser(self)
        self.first = True
        self.started = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data):
        now_ns = time.monotonic_ns()
        self.parser.feed_data(data)
        for stamp in STAMP.findall(data):
            self.results["transit"].append((now_ns - int(stamp)) / 1e6)

    def on_body(self, body):
        if self.first:
            self.first = False
            self.results["first"].append((time.perf_counter() - self.started) * 1000)

    def on_message_complete(self):
        self.results["ms"].append((time.perf_counter() - self.started) * 1000)
        self.results["errors"] += self.parser.get_status_code() != 200
        if time.perf_counter() < self.until:
            asyncio.get_running_loop().call_soon(self.send)
        else:
            self.done = True
            self.transport.close()

    def connection_lost(self, exc):
        if not self.closed.done():
            self.closed.set_result(None)


def share_of(values, share):
    """The value below which `share` of all lie, None without any."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3) if ordered else None


async def run(host, port, connections, seconds, kind, fields):
    request = request_of(kind, fields)
    results = {"ms": [], "first": [], "transit": [], "errors": 0}
    started = time.perf_counter()
    until = started + seconds
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: Client(request, results, until), host, port))[1]
        for _ in range(connections)
    ]
    await asyncio.wait_for(asyncio.gather(*(client.closed for client in clients)), seconds + 30)
    # Whoever was cut off instead of answered has ended without a last answer.
    cut = sum(not getattr(client, "done", False) for client in clients)
    return {
        "requests": len(results["ms"]),
        "errors": results["errors"] + cut,
        "seconds": round(time.perf_counter() - started, 3),
        "p50_ms": share_of(results["ms"], 0.5),
        "p99_ms": share_of(results["ms"], 0.99),
        "first_p50_ms": share_of(results["first"], 0.5),
        "transit_p50_ms": share_of(results["transit"], 0.5),
    }


if __name__ == "__main__":
    import uvloop

    address, connections, seconds, kind, *fields = sys.argv[1:]
    host, port = address.split(":")
    print(json.dumps(uvloop.run(run(host, int(port), int(connections), float(seconds), kind, fields))))
