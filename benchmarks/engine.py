"""The engine tier alone, without HTTP: what a second worker and the choice of a worker are worth.

    python benchmarks/engine.py [--seconds 5] [--requests 1500]

Three tables. Throughput of the tiny model by workers and tool sets, every request another text and no cache, with the
waits and the loads anew. The time of an answer from the cache. And the 95th percentile of an open stream of requests
over nine tool sets, with the choice by cost and with round robin, on engines that take a fixed time.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

import stand

from needle_router.config.schema import Engine
from needle_router.engine.base import EngineState
from needle_router.engine.pool import EnginePool
from needle_router.task import EngineReply, Task

FACTS = "date: 2026-11-30 Mon"
ROOMS = ("kitchen", "bedroom", "bathroom", "hallway", "garage")
TOOL_SETS = 9
#: What a step and a load cost in the second part, and how many requests a second come in for three workers.
STEP_MS, INIT_MS, PER_SECOND, WORKERS = 50, 150, 16, 3


def tools_of(number):
    """One tool set of several: the same tool with a description that differs."""
    parameters = {
        "type": "object",
        "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
        "required": ["room", "on"],
    }
    tool = {"name": "set_lights", "description": f"Switch the lights of house {number}", "parameters": parameters}
    return json.dumps([tool], separators=(",", ":"))


class RoundRobin(EnginePool):
    """The same pool, but each worker in turn."""

    def __init__(self, settings):
        super().__init__(settings)
        self._turns = itertools.count()

    def _place(self, job, open_slots):
        open_slots[next(self._turns) % len(open_slots)].add(job)


async def ready(pool):
    await pool.start()
    while len(pool.health().pids) < pool.health().workers or pool.health().state is not EngineState.READY:
        if pool.health().state is EngineState.FAILED:
            raise SystemExit(f"the engine failed: {pool.health().detail}")
        await asyncio.sleep(0.02)
    # Every worker has loaded once it has answered: one request for each, at once.
    warm = (pool.complete(Task(FACTS, tools_of(n), ("turn on the kitchen lights",)), deadline_s=60) for n in range(4))
    await asyncio.gather(*warm)


async def throughput(workers, sets, seconds):
    """A closed loop of four clients a worker; the demo model writes JSON that is none now and then (`no envelope`)."""
    settings = Engine(backend="rust", model="tiny", workers=workers, queue_limit=100)
    pool, numbers, waits, failures = EnginePool(settings), itertools.count(), [], 0
    try:
        await ready(pool)
        loaded, began = pool.health().reinits, time.perf_counter()

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
            "loads": pool.health().reinits - loaded,
            "no envelope": failures,
        }
    finally:
        await pool.aclose()


async def cached(count=2000):
    """Microseconds of an answer from the cache."""
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
        return sorted(times)
    finally:
        await pool.aclose()


async def open_stream(kind, script, requests):
    """Requests at random moments, whether or not the earlier ones are done; the same moments for every `kind`."""
    pool = kind(Engine(backend="scripted", script=script, workers=WORKERS, queue_limit=100_000))
    dice, times, failures = random.Random(7), [], 0
    plan = [(dice.randrange(TOOL_SETS), dice.expovariate(PER_SECOND)) for _ in range(requests)]
    try:
        await ready(pool)
        loaded = pool.health().reinits

        async def one(tools):
            nonlocal failures
            began = time.perf_counter()
            reply = await pool.complete(Task(FACTS, tools_of(tools), ("x",)), deadline_s=600)
            failures += not isinstance(reply, EngineReply)
            times.append((time.perf_counter() - began) * 1000)

        async with asyncio.TaskGroup() as group:
            for tools, pause_s in plan:
                group.create_task(one(tools))
                await asyncio.sleep(pause_s)
        return {
            "choice": "round robin" if kind is RoundRobin else "by cost",
            "p50 ms": round(statistics.median(times)),
            "p95 ms": round(percentile(times, 0.95)),
            "loads": pool.health().reinits - loaded,
            "failures": failures,
        }
    finally:
        await pool.aclose()


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def run(seconds, requests):
    print("tiny model (rust), 4 clients a worker, every text another, no cache")
    rows = [await throughput(workers, sets, seconds) for sets in (1, TOOL_SETS) for workers in (1, 2)]
    print(stand.table(rows))
    for one, two in zip(rows[::2], rows[1::2], strict=True):
        print(f"{one['tool sets']} tool set(s): two workers do {two['req/s'] / one['req/s']:.2f} times as much as one")
    times = await cached()
    print(f"\nfrom the cache: p50 {statistics.median(times):.0f} us, p99 {percentile(times, 0.99):.0f} us")
    print(f"\n{WORKERS} workers, {TOOL_SETS} tool sets, {PER_SECOND} req/s, step {STEP_MS} ms, load {INIT_MS} ms")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"envelopes": [], "delays": {"step_ms": STEP_MS, "init_ms": INIT_MS}}))
        chosen = [await open_stream(kind, str(script), requests) for kind in (RoundRobin, EnginePool)]
    print(stand.table(chosen))
    print(f"by cost, p95 is {chosen[1]['p95 ms'] / chosen[0]['p95 ms']:.2f} of round robin's")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--requests", type=int, default=1500)
    args = parser.parse_args()
    asyncio.run(run(args.seconds, args.requests))


if __name__ == "__main__":
    main()
