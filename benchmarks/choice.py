"""What the choice of a worker is worth: the 95th percentile by cost and with round robin, in the same minutes.

    python benchmarks/choice.py [--requests 1500]

Nine tool sets on three workers of the real pool; the engine is scripted and takes a fixed time to load and to step.
Both choices get the same requests at the same moments, side by side, so that a busy machine slows both. Round robin
loads for nearly every request, which is about all that three workers can do, so its queue takes some twenty seconds to
grow to its length: the first quarter of the requests is warm-up and counted apart.
"""

import argparse
import asyncio
import itertools
import json
import random
import tempfile
import time
from pathlib import Path

import stand
from sets import FACTS, percentile, ready, tools_of

from needle_router.config.schema import Engine
from needle_router.engine.pool import EnginePool
from needle_router.task import EngineReply, Task

TOOL_SETS = 9
#: What a step and a load cost, and how many requests a second come in for three workers.
STEP_MS, INIT_MS, PER_SECOND, WORKERS = 50, 150, 16, 3
WARM_UP = 0.25


class RoundRobin(EnginePool):
    """The same pool, but each worker in turn."""

    def __init__(self, settings):
        super().__init__(settings)
        self._turns = itertools.count()

    def _place(self, job, open_slots):
        open_slots[next(self._turns) % len(open_slots)].add(job)


CHOICES = {"round robin": RoundRobin, "by cost": EnginePool}


async def open_stream(name, script, requests):
    """Requests at random moments, whether or not the earlier ones are done; the same moments for every choice."""
    pool = CHOICES[name](Engine(backend="scripted", script=script, workers=WORKERS, queue_limit=100_000))
    dice, times, failures = random.Random(7), [0.0] * requests, 0
    plan = list(itertools.accumulate(dice.expovariate(PER_SECOND) for _ in range(requests)))
    sets = [dice.randrange(TOOL_SETS) for _ in range(requests)]
    try:
        await ready(pool)
        loaded, started = pool.health().reinits, time.perf_counter()

        async def one(number):
            nonlocal failures
            began = time.perf_counter()
            reply = await pool.complete(Task(FACTS, tools_of(sets[number]), ("x",)), deadline_s=600)
            failures += not isinstance(reply, EngineReply)
            times[number] = (time.perf_counter() - began) * 1000

        async with asyncio.TaskGroup() as group:
            for number, moment in enumerate(plan):
                await asyncio.sleep(started + moment - time.perf_counter())
                group.create_task(one(number))
        return summary(name, times, pool.health().reinits - loaded, failures)
    finally:
        await pool.aclose()


def summary(name, times, loads, failures):
    """A row; `times` are in the order in which the requests came."""
    first = int(len(times) * WARM_UP)
    warm, counted = times[:first], times[first:]
    return {
        "choice": name,
        "p50 ms": round(percentile(counted, 0.5)),
        "p95 ms": round(percentile(counted, 0.95)),
        "p95 ms in the warm-up": round(percentile(warm, 0.95)),
        "loads": loads,
        "failures": failures,
    }


async def run(requests):
    print(f"{WORKERS} workers, {TOOL_SETS} tool sets, {PER_SECOND} req/s, step {STEP_MS} ms, load {INIT_MS} ms")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"envelopes": [], "delays": {"step_ms": STEP_MS, "init_ms": INIT_MS}}))
        rows = await asyncio.gather(*(open_stream(name, str(script), requests) for name in CHOICES))
    print(stand.table(rows))
    print(f"by cost, p95 is {rows[1]['p95 ms'] / rows[0]['p95 ms']:.2f} of round robin's")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1500)
    asyncio.run(run(parser.parse_args().requests))


if __name__ == "__main__":
    main()
