"""All of the benchmark in one run: `make bench`.

    python benchmarks/run.py [--seconds 3] [--rounds 3] [--only NAME ...] [--json FILE] [--write-docs]

Prints the tables of docs/performance.md. `--json` keeps every single figure; `--write-docs` writes the tables into the
page and the figures into benchmarks/figures.json, which `make bench-check` compares with.
"""

import argparse
import json
import os
import platform
from pathlib import Path

import comparison
import leaving
import local
import stand
import tables

FIGURES = stand.HERE / "figures.json"
PAGE = stand.HERE.parent / "docs" / "performance.md"


def real_time():
    """Whether this process, and so all that it starts, goes before everything else on the machine."""
    return os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)


def measured(seconds, rounds, wanted):
    run = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "real_time": real_time()},
        "seconds": seconds,
        "rounds": rounds,
        "forward": comparison.compared(seconds, rounds, wanted),
        "leave": leaving.leave(),
    }
    with stand.upstream() as upstream:
        run["local"] = local.local(upstream, seconds, rounds)
        run["forward"]["ways"].update(local.asked(upstream, seconds, rounds))
        run["unaided"] = local.unaided(upstream, seconds, rounds)
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="of the other proxies, these (nginx, LiteLLM, Portkey)")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--write-docs", action="store_true")
    args = parser.parse_args()
    run = measured(args.seconds, args.rounds, args.only)
    print(tables.markdown(run))
    for file in [args.json, FIGURES] if args.write_docs else [args.json]:
        if file:
            file.write_text(json.dumps(run, indent=1) + "\n")
    if args.write_docs:
        PAGE.write_text(tables.written(PAGE.read_text("utf-8"), run), "utf-8")


if __name__ == "__main__":
    main()
