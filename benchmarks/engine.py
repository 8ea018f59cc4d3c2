"""The engine tier: what a second worker, the cache of decisions and the choice of a worker are worth.

    python benchmarks/engine.py [--seconds 5] [--repeats 3] [--requests 1500]

Throughput of the tiny model by workers and tool sets, every request another text and no cache. One and two workers take
turns, and the best of `repeats` counts, since other work on the machine only ever slows. Next to the clock stands the
CPU time, which other work hardly changes: what a request costs the workers and the router's process, and how many
requests two cores could do by that, with one worker and with two. Then the time of an answer from the cache, within the
process and over HTTP. Last, the choice of a worker (`choice.py`).
"""

import argparse
import asyncio
import http.client
import itertools
import json
import os
import statistics
import time

import choice
import proxies
import stand
from sets import FACTS, ROOMS, percentile, ready, tools_of

from needle_router.config.schema import Engine
from needle_router.engine.pool import EnginePool
from needle_router.task import EngineReply, Task

CACHED = """
[engine]
backend = "rust"
model = "tiny"
cache_entries = 8
[[policy]]
kind = "guards"
[[policy]]
kind = "threshold"
minimum = 0.5
"""


async def throughput(workers, sets, seconds):
    """A closed loop of four clients a worker; the demo model writes JSON that is none now and then (`no envelope`)."""
    settings = Engine(backend="rust", model="tiny", workers=workers, queue_limit=100)
    pool, numbers, waits, failures = EnginePool(settings), itertools.count(), [], 0
    try:
        await ready(pool)
        pids = pool.health().pids
        loaded = pool.health().reinits
        spent, own, began = sum(map(stand.cpu_s, pids)), time.process_time(), time.perf_counter()

        async def client():
            nonlocal failures
            while time.perf_counter() - began < seconds:
                number = next(numbers)
                text = f"turn on the {ROOMS[number % len(ROOMS)]} lights {number}"
                reply = await pool.complete(Task(FACTS, tools_of(number % sets), (text,)), deadline_s=60)
                failures += not isinstance(reply, EngineReply)
                waits.append(reply.queue_wait_s * 1000)

        await asyncio.gather(*(client() for _ in range(4 * workers)))
        took = time.perf_counter() - began
        return {
            "workers": workers,
            "tool sets": sets,
            "req/s": round(len(waits) / took, 1),
            "wait p50 ms": round(statistics.median(waits), 1),
            "wait p95 ms": round(percentile(waits, 0.95), 1),
            "worker CPU ms": round((sum(map(stand.cpu_s, pids)) - spent) / len(waits) * 1000, 2),
            "router CPU ms": round((time.process_time() - own) / len(waits) * 1000, 3),
            "loads": pool.health().reinits - loaded,
            "no envelope": failures,
        }
    finally:
        await pool.aclose()


async def scaling(sets, seconds, repeats):
    """The best rows of one and of two workers."""
    tried = [[await throughput(workers, sets, seconds) for workers in (1, 2)] for _ in range(repeats)]
    one, two = (max(rows, key=lambda row: row["req/s"]) for rows in zip(*tried, strict=True))
    for row, rows in zip((one, two), zip(*tried, strict=True), strict=True):
        row["worker CPU ms"] = min(other["worker CPU ms"] for other in rows)
    return one, two


def by_cpu(one, two):
    """How much more two workers could do on two cores of their own: with one, the router has the second core."""
    alone = 1 / one["worker CPU ms"]
    return 2 / (two["worker CPU ms"] + two["router CPU ms"]) / alone


async def cached(count=2000):
    """Microseconds of an answer from the cache, within the process."""
    pool = EnginePool(Engine(backend="rust", model="tiny", cache_entries=8))
    task = Task(FACTS, tools_of(0), ("turn on the hallway lights",))
    try:
        await ready(pool)
        assert not (await pool.complete(task, deadline_s=60)).cached
        times = []
        for _ in range(count):
            began = time.perf_counter()
            reply = await pool.complete(task, deadline_s=60)
            times.append((time.perf_counter() - began) * 1e6)
            assert reply.cached
        return times
    finally:
        await pool.aclose()


def cached_over_http(count=1000):
    """Milliseconds of an equal request over HTTP, on one connection, and the CPU of the router's process for each."""
    tools = [{"type": "function", "function": json.loads(tools_of(0))[0]}]
    body = {"model": "bench", "messages": [{"role": "user", "content": "turn on the hallway lights"}], "tools": tools}
    raw, times = json.dumps(body), []
    with stand.upstream() as upstream, proxies.router(upstream, CACHED) as router:
        stand.wait_for_engine(router.port)
        connection = http.client.HTTPConnection("127.0.0.1", router.port, timeout=60)
        for number in range(count + 1):
            if number == 1:
                spent = stand.cpu_s(router.pid)
            began = time.perf_counter()
            connection.request("POST", "/v1/chat/completions", raw, {"content-type": "application/json"})
            answer = json.load(connection.getresponse())
            times.append((time.perf_counter() - began) * 1000)
            if answer.get("x_needle", {}).get("cached") is not (number > 0):
                raise SystemExit(f"request {number + 1} of the same was not answered as it should be: {answer}")
        return times[1:], (stand.cpu_s(router.pid) - spent) / count * 1000


async def run(seconds, repeats, requests):
    print(f"tiny model (rust), 4 clients a worker, each text new, no cache; best of {repeats}, {os.cpu_count()} cores")
    found = [await scaling(sets, seconds, repeats) for sets in (1, choice.TOOL_SETS)]
    print(stand.table([row for pair in found for row in pair]))
    for one, two in found:
        clock, cpu = two["req/s"] / one["req/s"], by_cpu(one, two)
        print(f"{one['tool sets']} tool set(s): two workers do {clock:.2f} times as much as one, {cpu:.2f} by CPU")
    times = await cached()
    print(f"\nfrom the cache: p50 {percentile(times, 0.5):.0f} us, p99 {percentile(times, 0.99):.0f} us")
    times, cpu_ms = cached_over_http()
    # The quietest stretch: other work on the machine only ever slows.
    calm = min((times[i : i + 100] for i in range(0, len(times), 100)), key=lambda part: percentile(part, 0.5))
    for name, some in (("all of it", times), ("quietest 100", calm)):
        print(f"over HTTP, {name}: p50 {percentile(some, 0.5):.2f} ms, p99 {percentile(some, 0.99):.2f} ms")
    print(f"the router's CPU for each: {cpu_ms:.2f} ms\n")
    await choice.run(requests)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1500)
    args = parser.parse_args()
    asyncio.run(run(args.seconds, args.repeats, args.requests))


if __name__ == "__main__":
    main()
