"""The regression gate, `make bench-check`: what a request costs beside nginx, against the recorded figures.

    python benchmarks/gate.py [--slack 0.3] [--seconds 3] [--rounds 3]

Compared are CPU microseconds a request as multiples of nginx's in the same round, because the machine's speed and what
else it does cancel out in them. Exit code 1 when a median is more than `slack` above the recorded one, 2 without nginx.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import comparison
import goals
import proxies
import run
import stand

#: Points at which the cost is compared. At one connection, and in streams whose pieces may travel together, the cost
#: depends on how often the machine's other work lets the proxy run; at 64 it does not.
POINTS = ("c64",)


def costs(points):
    """{point: the router's CPU a request as a multiple of nginx's, median of the rounds}"""
    return {
        name: goals.median(goals.ratios({"forward": {"points": points}}, name, "cpu_us", "nginx")) for name in POINTS
    }


def regressions(recorded, now, slack):
    """The points that cost more than they may."""
    return [name for name in POINTS if now[name] > recorded[name] * (1 + slack)]


def measured(seconds, rounds):
    with (
        stand.upstream() as upstream,
        proxies.router(upstream) as router,
        proxies.others(upstream, ["nginx"]) as others,
    ):
        comparison.warm([*others, router])
        return costs(comparison.rounds([*others, router], rounds, seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slack", type=float, default=0.3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figures", type=Path, default=run.FIGURES)
    args = parser.parse_args()
    if shutil.which("nginx") is None:
        print("nginx is not installed: without it there is nothing to compare with")
        return 2
    recorded = costs(json.loads(args.figures.read_text())["forward"]["points"])
    now = measured(args.seconds, args.rounds)
    for name in POINTS:
        change = now[name] / recorded[name] - 1
        print(f"{name:<6} {now[name]:.1f} times nginx's CPU, recorded {recorded[name]:.1f} ({change:+.0%})")
    worse = regressions(recorded, now, args.slack)
    if worse:
        print(f"more than {args.slack:.0%} above the recorded figures: {', '.join(worse)}")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
