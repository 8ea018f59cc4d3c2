"""What the router costs beside the engine: local answers, and tool turns while the engine is busy or missing.

    python benchmarks/local.py [--seconds 3] [--rounds 3]

Five tools are declared and the engine is a scripted one, so the router's own account (`x-needle-overhead-ms`) leaves no
real engine out. Busy: every place is taken by requests that the engine never answers. Missing: there is no model.
"""

import argparse
import contextlib
import json
import socket
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

import comparison
import load
import proxies
import stand

TRUSTED = {**comparison.DOUBTFUL, "confidence": 0.97}
#: How long a request may wait for the engine that never answers: longer than the measurement.
BUSY_DEADLINE_S = 120
BUSY = f"workers = 1\nqueue_limit = 1\ndeadline_s = {BUSY_DEADLINE_S}\n"
#: Requests that may be sent to take two places; one that comes too early is passed on.
MOST_TRIES = 20


@contextlib.contextmanager
def scripted(upstream_port, script, more=""):
    """A router whose engine follows a script."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.json"
        file.write_text(json.dumps(script))
        config = f'[engine]\nbackend = "scripted"\nscript = "{file}"\n{more}'
        with proxies.router(upstream_port, config) as router:
            stand.wait_for_engine(router.port)
            yield router


def overheads(port, count, route="local"):
    """The router's own account of `count` tool turns, in milliseconds."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", load.body_of("tools"), {"content-type": "application/json"}
    )
    found = []
    for _ in range(count):
        with urllib.request.urlopen(request, timeout=10) as answer:
            if answer.headers["x-needle-route"] != route:
                raise SystemExit(f"expected {route}: {answer.headers['x-needle-reason']}")
            found.append(float(answer.headers["x-needle-overhead-ms"]))
    return found


def local(upstream_port, seconds, count):
    """Own time of local answers, and their CPU at one and at 16 connections."""
    with scripted(upstream_port, {"envelopes": [TRUSTED]}) as router:
        overheads(router.port, 50)
        found = overheads(router.port, 400)
        loads = {f"c{c}": [comparison.measure(router, "tools", c, seconds) for _ in range(count)] for c in (1, 16)}
    return {"own_p50_ms": load.share_of(found, 0.5), "own_p99_ms": load.share_of(found, 0.99), **loads}


def asked(upstream_port, seconds, count):
    """Tool turns that the engine is asked about and that are then forwarded."""
    way, kind, _ = comparison.WAYS[-1]
    with scripted(upstream_port, {"envelopes": [comparison.DOUBTFUL]}) as router:
        return {way: {f"c{c}": [comparison.measure(router, kind, c, seconds) for _ in range(count)] for c in (64, 1)}}


def unaided(upstream_port, seconds, count):
    """Tool turns at one connection beside the same without a router, with the engine busy and without a model."""
    direct = proxies.Proxy("direct", upstream_port, None)
    found = {}
    with scripted(upstream_port, {"envelopes": [TRUSTED], "hang": True}, BUSY) as router, occupied(router.port):
        found["busy"] = beside(direct, router, seconds, count)
    with missing(upstream_port) as router:
        found["missing"] = beside(direct, router, seconds, count)
    return found


def turned_away(upstream_port, count=1000):
    """The router's own account of tool turns that the engine does not take: a busy machine hardly shows in it."""
    with scripted(upstream_port, {"envelopes": [TRUSTED], "hang": True}, BUSY) as router, occupied(router.port):
        overheads(router.port, 50, "upstream")
        yield "busy", overheads(router.port, count, "upstream")
    with missing(upstream_port) as router:
        overheads(router.port, 50, "upstream")
        yield "missing", overheads(router.port, count, "upstream")


@contextlib.contextmanager
def missing(upstream_port):
    """A router whose model cannot be loaded."""
    with tempfile.NamedTemporaryFile(suffix=".cact") as empty:
        config = f'[engine]\nbackend = "rust"\nmodel = "{empty.name}"\n'
        with proxies.router(upstream_port, config) as router:
            stand.wait_for_engine(router.port, state="failed")
            yield router


def beside(direct, router, seconds, count):
    """What the router adds, round by round."""
    overheads(router.port, 20, "upstream")
    pairs = [[comparison.measure(proxy, "tools", 1, seconds) for proxy in (direct, router)] for _ in range(count)]
    return [
        {f"added_{at}_ms": round(through[f"{at}_ms"] - plain[f"{at}_ms"], 3) for at in ("p50", "p99")}
        for plain, through in pairs
    ]


@contextlib.contextmanager
def occupied(port):
    """Keep the engine's one worker and its one place in the queue taken."""
    request = load.request_of("tools")
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_TRIES):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 5)).sendall(request)
            time.sleep(0.1)
            if stand.engine_of(port)["queue_depth"]:
                break
        else:
            raise SystemExit("the engine's places could not be taken")
        yield


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with stand.upstream() as upstream:
        found = local(upstream, args.seconds, args.rounds)
        print(f"local answer, router's own time: p50 {found['own_p50_ms']} ms, p99 {found['own_p99_ms']} ms")
        for point in ("c1", "c16"):
            cpu_us, p50_ms = (comparison.median(found[point], key) for key in ("cpu_us", "p50_ms"))
            print(f"{point}: p50 {p50_ms} ms, {cpu_us} us of CPU a request, engine process included")
        for state, own in turned_away(upstream):
            p50_ms, p99_ms = (round(load.share_of(own, share), 2) for share in (0.5, 0.99))
            print(f"engine {state}: forwarded, router's own time p50 {p50_ms} ms, p99 {p99_ms} ms")
        for state, added in unaided(upstream, args.seconds, args.rounds).items():
            p50_ms, p99_ms = (statistics.median(row[f"added_{at}_ms"] for row in added) for at in ("p50", "p99"))
            print(f"engine {state}: forwarded, added p50 {p50_ms} ms, p99 {p99_ms} ms")


if __name__ == "__main__":
    main()
