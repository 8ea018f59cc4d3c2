"""What the ledger costs a request, and how fast it writes.

    python benchmarks/ledger.py [--records 100000] [--repeats 2000] [--place FILE|URL]

`noting` is everything between a finished request and its place in the queue: building its record, prices, totals,
spend, metrics and `put`, in CPU time of the event loop's thread. It is measured for a local answer and for a forwarded
one, as a router makes them: a burst at a time, with the writer idle, and once more at 1,000 requests a second with the
writer at work, one by one and so with cold caches. `writing` fills a new ledger as fast as the queue lets it. `--place`
names a ledger to write to, a `postgresql://` URL for one; it must not hold records that matter. Without it, a file in a
temporary folder is used.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from needle_router.build import build, wait_until_loaded
from needle_router.config.load import load_config
from needle_router.ledger import Ledger, place_of
from needle_router.serving.exchange import Exchange, Sent
from needle_router.surfaces.chat import parse
from needle_router.turn import Usage

LIMIT_US = 30
BURST = 200
PACE_PER_S = 1000
TOOL = {
    "type": "function",
    "function": {
        "name": "set_light",
        "description": "Switch a light on or off",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
            "required": ["room", "on"],
        },
    },
}
SYSTEM = "You are a helpful assistant in a house. Today is Monday, 2026-11-30. Be brief and never guess."
REQUEST = {
    "model": "gpt-4o",
    "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "turn on the kitchen light"}],
    "tools": [TOOL, *({**TOOL, "function": {**TOOL["function"], "name": f"other_{n}"}} for n in range(7))],
}
ENVELOPE = {
    "type": "call",
    "success": True,
    "function_calls": [{"name": "set_light", "arguments": {"room": "kitchen", "on": True}}],
    "confidence": 0.97,
    "validation": {"ungrounded": [], "negation": False},
}


async def nowhere(*_):
    """Neither side of an exchange says anything here."""


async def decided(services):
    """One request, decided by the pipeline on a scripted engine."""
    turn = parse(json.dumps(REQUEST).encode())
    await services.engine.start()
    try:
        await wait_until_loaded(services.engine)
        verdict = await services.pipeline.decide(turn, "on")
        # The engine's name is looked up once, while it is ready.
        services.pipeline.fingerprint(verdict.prepared)
        return turn, verdict
    finally:
        await services.engine.aclose()


def services_for(folder, place):
    script = folder / "script.json"
    script.write_text(json.dumps({"envelopes": [ENVELOPE]}))
    flags = {
        "engine.backend": "scripted",
        "engine.script": str(script),
        "ledger.path": place,
        "policy": [{"kind": "guards"}, {"kind": "threshold", "minimum": 0.7}],
    }
    services = build(load_config(environ={}, flags=flags), upstream=True, environ={"HOME": str(folder)})
    services.prices.cost_usd("gpt-4o", Usage())  # read the list
    return services


def notes(services, turn, verdict):
    """What is called once a request, by the kind of request."""
    exchange = Exchange(services, nowhere, {"type": "http", "headers": []}, nowhere, nowhere, [])
    local = Sent(status=200, saved=Usage(210, 19, estimated=True))
    forwarded = Sent(status=200, usage=Usage(412, 35, cached_tokens=128))
    return {
        "local": lambda: exchange.record("local", verdict, turn, local),
        "forwarded": lambda: exchange.record("upstream", verdict, turn, forwarded),
    }


def in_bursts(services, note, repeats):
    """Microseconds a call: the mean of each burst, with the writer idle."""
    means = []
    for _ in range(repeats // BURST):
        drained(services.ledger)
        began = time.thread_time()
        for _ in range(BURST):
            note()
        means.append((time.thread_time() - began) / BURST * 1e6)
    return {"fastest_us": round(min(means), 1), "median_us": round(statistics.median(means), 1)}


def at_a_pace(note, repeats):
    """Microseconds of single calls, evenly spread, while the writer writes the ones before."""
    found, due = [], time.perf_counter()
    for _ in range(repeats):
        due += 1 / PACE_PER_S
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.thread_time()
        note()
        found.append((time.thread_time() - began) * 1e6)
    found.sort()
    return {"median_us": round(statistics.median(found), 1), "p99_us": round(found[len(found) * 99 // 100], 1)}


def drained(ledger):
    """Wait until the writer has nothing to do; 60 s are enough for any queue."""
    deadline = time.monotonic() + 60
    while ledger.waiting:
        assert time.monotonic() < deadline, f"the ledger does not write: {ledger.detail}"
        time.sleep(0.01)


def writing(place, record, count):
    """Records a second, and the CPU time of one in all threads."""
    ledger = Ledger(place, queue_limit=5000)
    ledger.start()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        while ledger.waiting >= 4000:
            time.sleep(0.002)
        ledger.put(record)
    ledger.close(600)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    assert (ledger.written, ledger.dropped) == (count, 0), (ledger.written, ledger.dropped, ledger.detail)
    return {"records": count, "per_second": round(count / wall_s), "cpu_us": round(cpu_s / count * 1e6, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--place", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        services = services_for(folder, given.place or str(folder / "decisions.db"))
        turn, verdict = asyncio.run(decided(services))
        services.ledger.start()
        noting = {}
        for name, note in notes(services, turn, verdict).items():
            noting[name] = in_bursts(services, note, given.repeats) | {"paced": at_a_pace(note, given.repeats)}
        services.ledger.close(60)
        exchange = Exchange(services, nowhere, {"type": "http", "headers": []}, nowhere, nowhere, [])
        record = exchange.described("local", verdict, turn, Sent(status=200, saved=Usage(210, 19)))
        place = place_of(given.place) if given.place else folder / "many.db"
        print(json.dumps({"noting": noting, "writing": (wrote := writing(place, record, given.records))}))
    slowest = max(found["median_us"] for found in noting.values())
    print(f"noting a request takes {slowest} us (limit {LIMIT_US}); {wrote['per_second']} records a second are written")


if __name__ == "__main__":
    main()
