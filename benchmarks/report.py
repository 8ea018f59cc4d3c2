"""How long `needle-router report` takes for a ledger of made-up traffic, as tables, as JSON and as a page.

    python benchmarks/report.py [--records 100000] [--runs 3] [--ledger FILE]

The traffic is two weeks of five tools and three models, one of which has no price, the same at every run: shadow
comparisons, a canary, audits. `--ledger` keeps the ledger; the samples in README.md are made with 5,000 records.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from needle_router.ledger import Ledger
from needle_router.prices import Prices
from needle_router.records import DecisionRecord
from needle_router.turn import Usage

TOOLS = ("set_lights", "lock_door", "play_music", "set_timer", "get_weather")
MODELS = ("gpt-4o", "gpt-4o-mini", "house-model")
DIFFERENT = ("arguments-differ", "arguments-differ", "name-differs", "upstream-none", "local-missed")
DAYS = 14
PRICES = Prices({})
WAYS = {"tables": (), "json": ("--json",), "page": ("--html", "report.html")}


def traffic(count, now_s, seed=11):
    """`count` records of the last `DAYS` days."""
    draw = random.Random(seed)
    for index in range(count):
        share = draw.random()
        make = next(make for limit, make in KINDS if share < limit)
        time_s = now_s - DAYS * 86_400 * (1 - index / count)
        yield DecisionRecord(time_s=time_s, status=200, overhead_s=draw.expovariate(2000), **make(draw))


def passed_on(draw):
    """A request without tools."""
    return {"route": "upstream", "reason": "no-tools", "policy": "guards", **answered(draw)}


def unread(draw):
    return {"route": "upstream", "reason": "not-chat", "total_s": draw.expovariate(5)}


def compared(draw):
    """Outside of the canary: the upstream answers, and the engine is compared."""
    found = decided(draw)
    stopped = draw.random() < 0.25
    agrees = not stopped and draw.random() < 0.6 + 0.39 * found["confidence"]
    found |= {"failures": ("ungrounded",)} if stopped else {}
    found |= {"comparison": "agree" if agrees else draw.choice(DIFFERENT)}
    return {"route": "upstream", "reason": "canary-rest", "policy": "canary", **found, **answered(draw)}


def unsure(draw):
    return {"route": "upstream", "reason": "below-threshold", "policy": "threshold", **decided(draw), **answered(draw)}


def merged(draw):
    return {"route": "merged", "reason": "merged", "policy": "merge", **decided(draw), **answered(draw)}


def answered_here(draw):
    """A local answer; one in twenty was audited, and one in fifty won a race against an upstream that was asked."""
    found, model = decided(draw), draw.choice(MODELS)
    saved = Usage(draw.randint(100, 400), 20)
    found |= {
        "route": "local",
        "reason": "confident",
        "policy": "threshold",
        "confidence": max(0.85, found["confidence"]),
        "model": model,
        "saved": saved,
        "saved_usd": PRICES.cost_usd(model, saved),
        "total_s": found["engine_s"] + 0.002,
    }
    if draw.random() < 0.05:
        usage = Usage(draw.randint(200, 2000), draw.randint(5, 200))
        found |= {"audit": "compared", "audit_usage": usage, "audit_usd": PRICES.cost_usd(model, usage)}
        found |= {"comparison": "agree" if draw.random() < 0.95 else "arguments-differ"}
    elif draw.random() < 0.02:
        wasted = Usage(draw.randint(200, 2000))
        found |= {"raced": True, "wasted": wasted, "wasted_usd": PRICES.cost_usd(model, wasted)}
    return found


def decided(draw):
    return {
        "tools_offered": TOOLS,
        "tools_called": (draw.choice(TOOLS),),
        "confidence": round(draw.betavariate(6, 1.5), 4),
        "engine_ran": True,
        "engine_s": draw.uniform(0.1, 0.3),
        "fingerprint": "0123456789abcdef",
    }


def answered(draw):
    model, usage = draw.choice(MODELS), Usage(draw.randint(200, 2000), draw.randint(5, 200))
    return {
        "model": model,
        "usage": usage,
        "cost_usd": PRICES.cost_usd(model, usage),
        "total_s": draw.expovariate(1.2),
    }


KINDS = ((0.25, passed_on), (0.30, unread), (0.55, compared), (0.65, unsure), (0.68, merged), (1.0, answered_here))


def write(path, count):
    """Fill the ledger through its own writer; every record must arrive."""
    ledger = Ledger(path, queue_limit=count + 1)
    ledger.start()
    for record in traffic(count, time.time()):
        ledger.put(record)
    ledger.close(300)
    assert ledger.dropped == 0, f"{ledger.dropped} records were dropped"


def measure(path, folder, arguments, runs):
    """The fastest of some runs of the command, start of the interpreter included: wall and CPU seconds."""
    command = [sys.executable, "-m", "needle_router", "report", "--ledger", str(path.absolute()), *arguments]
    found = []
    for _ in range(runs):
        cpu, began = children_s(), time.perf_counter()
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found.append((round(time.perf_counter() - began, 2), round(children_s() - cpu, 2)))
    wall_s, cpu_s = min(found)
    return {"wall_s": wall_s, "cpu_s": cpu_s}


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ledger", type=Path, help="a file that does not exist yet; kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.ledger or Path(folder, "decisions.db")
        write(path, args.records)
        size_mb = path.stat().st_size / 1e6
        found = {name: measure(path, folder, arguments, args.runs) for name, arguments in WAYS.items()}
    print(json.dumps({"records": args.records, "ledger_mb": round(size_mb, 1), **found}))


if __name__ == "__main__":
    main()
