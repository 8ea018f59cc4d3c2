"""What a forwarded request notices while the dashboard reads a ledger: times with and without it.

    python benchmarks/dashboard.py [--records 100000] [--seconds 4] [--runs 3]

Each run starts a router anew, so that it has to read the whole ledger, and sends requests over one connection for
`--seconds`; with the dashboard, the page is asked for after half a second. `page_s` is how long the page took.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import stand

import report

CONFIG = """
mode = "off"
[upstream]
base_url = "http://127.0.0.1:{upstream}/v1"
[server]
port = {port}
[ledger]
path = "{ledger}"
[report]
dashboard_days = 365
"""


def run(folder, upstream, seconds, *, page):
    """One router, one load, and the page or not."""
    port = stand.free_port()
    config = Path(folder, "needle-router.toml")
    config.write_text(CONFIG.format(upstream=upstream, port=port, ledger=Path(folder, "decisions.db")))
    with stand.process(1, sys.executable, "-m", "needle_router", "--config", str(config)):
        stand.wait_for(f"http://127.0.0.1:{port}/healthz")
        stand.load(port, 1, 0.5, "json")
        took = []
        asker = threading.Thread(target=ask, args=(port, took), daemon=True)
        if page:
            asker.start()
        found = stand.load(port, 1, seconds, "json")
        if page:
            asker.join(60)
    kept = {name: found[name] for name in ("p50_ms", "p99_ms", "requests")}
    return {"dashboard": page, **kept, "page_s": took[0] if took else None}


def ask(port, took):
    time.sleep(0.5)
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/dashboard", timeout=60) as answer:
        text = answer.read().decode()
    took.append(round(time.perf_counter() - began, 2))
    assert "By reason" in text, "the page came without its report"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, stand.upstream() as upstream:
        report.write(Path(folder, "decisions.db"), args.records)
        for _ in range(args.runs):
            for page in (False, True):
                print(json.dumps(run(folder, upstream, args.seconds, page=page)))


if __name__ == "__main__":
    main()
