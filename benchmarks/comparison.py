"""The forwarded path: the same load through each proxy, in turns, so that a machine that slows down slows all of them.

    python benchmarks/comparison.py [--seconds 3] [--rounds 3] [--only NAME ...]

The load generator and the mock upstream share core 0; each proxy has core 1 while it is its turn. CPU is read from the
scheduler for the proxy's whole process tree, so requests per CPU-second repeat where wall times do not.
"""

import argparse
import statistics
import time
from dataclasses import replace

import proxies
import stand

#: What is asked of every proxy: name, kind of request, connections.
POINTS = (("c1", "json", 1), ("c8", "json", 8), ("c64", "json", 64), ("bulk", "stream", 8), ("paced", "paced", 8))
#: What is asked of the router alone, at 64 connections and at one: the ways a request can take through it.
WAYS = (
    ("a path that is no chat completion", "other", ()),
    ("chat, `x-needle-mode: off`", "json", ("x-needle-mode:off",)),
    ("chat without tools", "json", ()),
    ("chat with tools, engine asked, answer not used", "tools", ()),
)
#: An engine that answers at once with a call nobody trusts.
DOUBTFUL = {
    "type": "call",
    "success": True,
    "function_calls": [{"name": "set_light", "arguments": {"room": "kitchen", "value": 40}}],
    "confidence": 0.1,
    "validation": {"ungrounded": [], "negation": False},
}
CROWD, CROWD_S = 256, 6.0


def measure(proxy, kind, connections, seconds):
    """One figure set of one proxy."""
    before = stand.cpu_s(proxy.pid) if proxy.pid else 0.0
    found = stand.load(proxy.port, connections, seconds, kind, proxy.fields)
    found["req/s"] = round(found["requests"] / found["seconds"], 1)
    if proxy.pid:
        used = stand.cpu_s(proxy.pid) - before
        found["cpu_us"] = round(used / found["requests"] * 1e6, 1)
        found["req/cpu_s"] = round(found["requests"] / used, 1)
        found["rss_mb"] = round(stand.rss_mb(proxy.pid), 1)
    return found


def rounds(running, count, seconds):
    """{point: {proxy: [one figure set a round]}}"""
    found = {name: {proxy.name: [] for proxy in running} for name, *_ in POINTS}
    for _ in range(count):
        for name, kind, connections in POINTS:
            for proxy in running:
                found[name][proxy.name].append(measure(proxy, kind, connections, seconds))
    return found


def crowd(running):
    """256 clients on an upstream that takes a second."""
    return {proxy.name: measure(proxy, "slow", CROWD, CROWD_S - 0.2) for proxy in running}


def ways(proxy, count, seconds, names):
    """{way: figure sets of each round at 64 connections and at one}"""
    found = {}
    for way, kind, fields in WAYS:
        if way in names:
            asked = replace(proxy, fields=fields)
            found[way] = {f"c{c}": [measure(asked, kind, c, seconds) for _ in range(count)] for c in (64, 1)}
    return found


def median(figures, key):
    values = [row[key] for row in figures if row.get(key) is not None]
    return round(statistics.median(values), 3) if values else None


def warm(running):
    for proxy in running:
        stand.load(proxy.port, 8, 1, "json", proxy.fields)
        stand.load(proxy.port, 8, 0.5, "stream", proxy.fields)


def compared(seconds, count, wanted=None):
    """Everything above, with every proxy that is there."""
    with (
        stand.upstream() as upstream,
        proxies.router(upstream) as router,
        proxies.others(upstream, wanted) as others,
    ):
        direct = proxies.Proxy("direct", upstream, None)
        running = [direct, *others, router]
        warm(running)
        time.sleep(0.5)
        return {
            "versions": {proxy.name: proxy.version for proxy in others},
            "points": rounds(running, count, seconds),
            "crowd": crowd(running),
            "ways": ways(router, count, seconds, {way for way, kind, _ in WAYS if kind != "tools"}),
        }


def rows(found):
    """One line a point and proxy, for the terminal."""
    for point, by_proxy in found["points"].items():
        for name, figures in by_proxy.items():
            keys = ("req/cpu_s", "cpu_us", "p50_ms", "p99_ms", "first_p50_ms", "transit_p50_ms", "rss_mb")
            yield {"point": point, "via": name, **{key: median(figures, key) for key in keys}}
    for name, figures in found["crowd"].items():
        yield {
            "point": "256 on 1 s",
            "via": name,
            **{k: figures.get(k) for k in ("req/s", "p50_ms", "p99_ms", "errors")},
        }
    for way, points in found["ways"].items():
        for point, figures in points.items():
            yield {"point": f"{way} {point}", "via": "needle-router", "cpu_us": median(figures, "cpu_us")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    print(stand.table(list(rows(compared(args.seconds, args.rounds, args.only)))))


if __name__ == "__main__":
    main()
