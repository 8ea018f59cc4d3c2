"""Clients that leave, clients that hardly read, and the time until the port answers.

    python benchmarks/leaving.py [--seconds 20]

Leaving: a client closes its connection before the upstream's headers or in the middle of a stream; measured is the time
until the upstream sees its own connection closed. Slow reader: an answer of 2 GB, read at 1 KB a second; measured is
how much the router grows. Ready: from the start of the process to the first answer of /healthz.
"""

import argparse
import json
import socket
import statistics
import time
import urllib.request

import proxies
import stand

#: How an answer is left: the upstream never answers, or never ends.
WHEN = {"before the headers": "bench-hold", "in the middle of the answer": "bench-drip"}
READ_BYTES, READ_EVERY_S = 1024, 1.0


def asking(port, model):
    """A connection with one request sent."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "word"}], "stream": True}).encode()
    client = socket.create_connection(("127.0.0.1", port), 5)
    client.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    return client


def closed_ns(upstream_port):
    with urllib.request.urlopen(f"http://127.0.0.1:{upstream_port}/closed", timeout=5) as answer:
        return json.load(answer)["closed_ns"]


def gone_ms(upstream_port, port, model):
    """Milliseconds from a client's leaving to the upstream's connection being closed."""
    client = asking(port, model)
    if model == "bench-drip":
        client.recv(65536)
    time.sleep(0.05)
    left = time.monotonic_ns()
    client.close()
    until = time.monotonic() + 5
    while (closed := closed_ns(upstream_port)) < left:
        if time.monotonic() > until:
            raise SystemExit("the upstream's connection was not closed")
        time.sleep(0.01)
    return (closed - left) / 1e6


def leaving(upstream_port, router, count):
    """{when: milliseconds of each try}"""
    return {
        when: [round(gone_ms(upstream_port, router.port, model), 2) for _ in range(count)]
        for when, model in WHEN.items()
    }


def slow_reader(router, seconds):
    """MB by which the router grows at most while a client reads 2 GB at 1 KB a second."""
    before = stand.rss_mb(router.pid)
    client = asking(router.port, "bench-huge")
    most, until = before, time.monotonic() + seconds
    while time.monotonic() < until:
        client.recv(READ_BYTES)
        most = max(most, stand.rss_mb(router.pid))
        time.sleep(READ_EVERY_S)
    client.close()
    return round(most - before, 1)


def ready(upstream_port, count):
    """Seconds until the port answers, of each of several starts."""
    found = []
    for _ in range(count):
        with proxies.router(upstream_port) as router:
            found.append(round(router.ready_s, 3))
    return found


def leave(seconds=20, count=10):
    with stand.upstream() as upstream:
        starts = ready(upstream, max(3, count // 2))
        with proxies.router(upstream) as router:
            stand.load(router.port, 8, 1, "json")
            return {
                "ready_s": starts,
                "gone_ms": leaving(upstream, router, count),
                "slow_reader_mb": slow_reader(router, seconds),
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="how long the slow reader reads")
    found = leave(parser.parse_args().seconds)
    print(f"ready after {statistics.median(found['ready_s'])} s")
    for when, times in found["gone_ms"].items():
        print(f"client gone {when}: upstream closed after {statistics.median(times)} ms, at most {max(times)} ms")
    print(f"2 GB read at 1 KB/s: the router grew by {found['slow_reader_mb']} MB")


if __name__ == "__main__":
    main()
