"""What the router costs on the forwarded path: the same load with and without it, in one run.

    python benchmarks/forward.py [--seconds 4] [--json FILE]

nginx, where it is installed, does the same job in the same run. The load generator and the mock upstream share core 0,
the router has core 1. CPU is read from the scheduler, so the figures per CPU-second repeat on a noisy machine; wall
times are best read as differences within one run.
"""

import argparse
import json
from pathlib import Path

import stand

CONFIG = '[engine]\nbackend = "rust"\nmodel = "tiny"\n'


def measure(port, pid, connections, seconds, kind, via="router"):
    before = stand.cpu_s(pid) if pid else 0.0
    result = stand.load(port, connections, seconds, kind)
    used = stand.cpu_s(pid) - before if pid else 0.0
    row = {
        "what": kind,
        "c": connections,
        "via": via,
        "req/s": round(result["requests"] / result["seconds"]),
        "p50 ms": result["p50_ms"],
        "p99 ms": result["p99_ms"],
        "errors": result["errors"],
    }
    if pid:
        row["us CPU/req"] = round(used / result["requests"] * 1e6)
        row["req/CPU-s"] = round(result["requests"] / used)
        row["RSS MB"] = round(stand.rss_mb(pid), 1)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    with stand.upstream() as upstream, stand.router(upstream, CONFIG) as (port, child, ready_s):
        stand.load(port, 8, 1, "json")  # warm
        with stand.nginx(upstream) as other:
            for kind, connections in (("json", 1), ("json", 8), ("json", 64), ("stream", 8)):
                rows.append(measure(upstream, None, connections, args.seconds / 2, kind, "direct"))
                if other:
                    rows.append(measure(*other, connections, args.seconds / 2, kind, "nginx"))
                rows.append(measure(port, child.pid, connections, args.seconds, kind))
    print(stand.table(rows))
    by = {(row["what"], row["c"], row["via"]): row for row in rows}
    added = by["json", 1, "router"]["p50 ms"] - by["json", 1, "direct"]["p50 ms"]
    print(f"\nready after {ready_s:.2f} s; added p50 at c=1: {added:.3f} ms")
    if ("json", 64, "nginx") in by:
        share = by["json", 64, "router"]["req/CPU-s"] / by["json", 64, "nginx"]["req/CPU-s"]
        print(f"requests per CPU-second at c=64, as a share of nginx: {share:.3f}")
    if args.json:
        args.json.write_text(json.dumps({"ready_s": ready_s, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
