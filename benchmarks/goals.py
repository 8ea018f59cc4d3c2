"""What the figures have to reach: for each, the least that must hold and the goal beyond, and how it is read off a run.

A figure is the median over the rounds; a ratio is formed within each round before its median is taken, because rounds
on a shared machine differ more than proxies do.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Run = dict[str, Any]
ROUTER = "needle-router"


@dataclass(frozen=True)
class Goal:
    """One line of the table. `higher` says that more is better; `read` gives None where the run lacks the figure."""

    what: str
    must: float
    stretch: float | None
    read: Callable[[Run], float | None]
    unit: str = ""
    higher: bool = False

    def verdict(self, value):
        if value is None:
            return "not measured"
        if self.stretch is not None and self._holds(value, self.stretch):
            return "stretch met"
        return "met" if self._holds(value, self.must) else "not met"

    def _holds(self, value, limit):
        return value >= limit if self.higher else value <= limit

    def limit(self, value):
        if value is None:
            return "-"
        return f"{'>=' if self.higher else '<='} {value:g}{self.unit and ' ' + self.unit}"


def rows_of(run, point, name):
    return run["forward"]["points"].get(point, {}).get(name, [])


def median(values):
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def of(point, key, name=ROUTER, times=1.0):
    """The median of a figure at a point."""

    def read(run):
        value = median(row.get(key) for row in rows_of(run, point, name))
        return None if value is None else value * times

    return read


def ratios(run, point, key, other):
    """The router's figure over the other's, round by round."""
    pairs = zip(rows_of(run, point, ROUTER), rows_of(run, point, other), strict=False)
    return [ours[key] / theirs[key] for ours, theirs in pairs if ours.get(key) and theirs.get(key)]


def ratio(point, key, other):
    return lambda run: median(ratios(run, point, key, other))


def added(key, name=ROUTER):
    """What a proxy adds to a latency at one connection, against the upstream itself in the same round."""

    def read(run):
        pairs = zip(rows_of(run, "c1", name), rows_of(run, "c1", "direct"), strict=False)
        return median(through[key] - plain[key] for through, plain in pairs)

    return read


def share_added(other):
    def read(run):
        theirs, ours = added("p50_ms", other)(run), added("p50_ms")(run)
        return None if theirs is None else ours / theirs

    return read


def crowd(key):
    return lambda run: run["forward"]["crowd"].get(ROUTER, {}).get(key)


def gone(run):
    return max(max(times) for times in run["leave"]["gone_ms"].values())


def unaided(run):
    return max(median(row["added_p99_ms"] for row in rows) for rows in run["unaided"].values())


GOALS = (
    Goal("requests per CPU-second at c=64, share of nginx", 0.04, 0.08, ratio("c64", "req/cpu_s", "nginx"), "", True),
    Goal("the same, times LiteLLM", 25, 60, ratio("c64", "req/cpu_s", "LiteLLM"), "x", True),
    Goal("the same, times Portkey", 4, 10, ratio("c64", "req/cpu_s", "Portkey"), "x", True),
    Goal("added p50 at c=1", 0.5, 0.3, added("p50_ms"), "ms"),
    Goal("added p99 at c=1", 1.5, 0.7, added("p99_ms"), "ms"),
    Goal("added p50, share of LiteLLM's", 1 / 20, None, share_added("LiteLLM")),
    Goal("added p50, share of Portkey's", 1 / 3, None, share_added("Portkey")),
    Goal("p50 at c=8", 3, 1.5, of("c8", "p50_ms"), "ms"),
    Goal("first event of a stream at c=8, p50", 3, 1.5, of("paced", "first_p50_ms"), "ms"),
    Goal("a chunk under way at c=8, p50", 0.2, 0.15, of("paced", "transit_p50_ms"), "ms"),
    Goal("chunks per CPU-second", 40_000, 60_000, of("bulk", "req/cpu_s", times=50), "", True),
    Goal("the same, times LiteLLM", 40, None, ratio("bulk", "req/cpu_s", "LiteLLM"), "x", True),
    Goal("the same, times Portkey", 2.5, None, ratio("bulk", "req/cpu_s", "Portkey"), "x", True),
    Goal("256 clients on a 1 s upstream, requests per second", 240, None, crowd("req/s"), "", True),
    Goal("the same, p99", 1300, None, crowd("p99_ms"), "ms"),
    Goal("the same, errors", 0, None, crowd("errors")),
    Goal("resident memory of the server process", 60, 45, of("c64", "rss_mb"), "MB"),
    Goal("client gone to upstream closed, longest", 50, None, gone, "ms"),
    Goal("growth under a 2 GB answer read at 1 KB/s", 64, None, lambda run: run["leave"]["slow_reader_mb"], "MB"),
    Goal("start to first answer of /healthz", 1, 0.5, lambda run: median(run["leave"]["ready_s"]), "s"),
    Goal("local answer with 5 tools, own time p50", 2, 1, lambda run: run["local"]["own_p50_ms"], "ms"),
    Goal("tool turn with the engine busy or missing, added p99", 5, None, unaided, "ms"),
)
