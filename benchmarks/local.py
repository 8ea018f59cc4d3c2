"""What the router itself costs on a local answer, beside the engine: a scripted engine that answers at once.

    python benchmarks/local.py [--seconds 4]

Five tools are declared; `overhead` is the router's own account (`x-needle-overhead-ms`), which leaves the engine out.
"""

import argparse
import json
import statistics
import tempfile
import urllib.request
from pathlib import Path

import load
import stand

ENVELOPE = {
    "type": "call",
    "success": True,
    "function_calls": [{"name": "set_light", "arguments": {"room": "kitchen", "value": 40}}],
    "confidence": 0.97,
    "validation": {"ungrounded": [], "negation": False},
}


def overheads(port, count):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", load.body_of("tools"), {"content-type": "application/json"}
    )
    found = []
    for _ in range(count):
        with urllib.request.urlopen(request, timeout=10) as answer:
            if answer.headers["x-needle-route"] != "local":
                raise SystemExit(f"not answered locally: {answer.headers['x-needle-reason']}")
            found.append(float(answer.headers["x-needle-overhead-ms"]))
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"envelopes": [ENVELOPE]}))
        config = f'[engine]\nbackend = "scripted"\nscript = "{script}"\n'
        with stand.upstream() as upstream, stand.router(upstream, config) as (port, child, _):
            stand.wait_for_engine(port)
            overheads(port, 50)
            found = overheads(port, 400)
            print(f"local answer, router's own time: p50 {statistics.median(found):.2f} ms, p99 {found[395]:.2f} ms")
            for connections in (1, 16):
                before = stand.cpu_s(child.pid)
                result = stand.load(port, connections, args.seconds, "tools")
                used = (stand.cpu_s(child.pid) - before) / result["requests"]
                print(
                    f"c={connections}: {result['requests'] / result['seconds']:.0f} req/s, p50 {result['p50_ms']} ms, "
                    f"{used * 1e6:.0f} us of router CPU a request, {result['errors']} errors"
                )


if __name__ == "__main__":
    main()
