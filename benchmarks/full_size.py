"""A model of Needle 2's full size through the whole router: how long a decision takes, and what a deadline does to it.

    python -m training.random_model --out needle-2-random.cact      # needs the training extra, see there
    python benchmarks/full_size.py needle-2-random.cact [--requests 5]

The model's weights are random and its one answer is fixed (`set_fan`, speed `high`), so nothing is said about quality.
It runs on needle-rs, in a worker of the real router, over HTTP, in front of an upstream and alone.
"""

import argparse
import http.client
import json
import statistics
import time
from pathlib import Path

import load
import proxies
import stand

SPEED = {"type": "string", "enum": ["low", "high"]}
FAN = {
    "type": "function",
    "function": {
        "name": "set_fan",
        "description": "Set the speed of the fan",
        "parameters": {"type": "object", "properties": {"speed": SPEED}, "required": ["speed"]},
    },
}
TOOLS = [FAN, *(tool for tool in load.TOOLS if tool["function"]["name"] != "set_fan")]
#: One timeout more in a row, and the pool would give the engine up for half a minute.
HASTY_REQUESTS = 4
WISH, OTHER_WISH = "set the fan to high", "set the fan to low"
CONFIG = """
[engine]
backend = "rust"
model = "{model}"
deadline_s = {deadline_s}
[[policy]]
kind = "guards"
[[policy]]
kind = "threshold"
minimum = 0.0
"""


class Client:
    """One connection to a router."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, path):
        self.connection.request("GET", path)
        return json.load(self.connection.getresponse())

    def ask(self, text, tools, model="bench"):
        """(route, reason, seconds) of one request."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], "tools": tools}
        began = time.perf_counter()
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        answer = self.connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}")
        return answer.headers["x-needle-route"], answer.headers["x-needle-reason"], time.perf_counter() - began


def scene(name, asked, expected):
    """A row: the times of one scene's requests, all of which must have ended as `expected`."""
    wrong = {(route, reason) for route, reason, _ in asked} - {expected}
    if wrong:
        raise SystemExit(f"{name}: {sorted(wrong)} instead of {expected}")
    times = [seconds for _, _, seconds in asked]
    return {
        "scene": name,
        "requests": len(asked),
        "route": expected[0],
        "reason": expected[1],
        "p50 s": round(statistics.median(times), 3),
        "longest s": round(max(times), 3),
    }


def patient(client, pid, requests, name):
    """With time enough, decisions are answered or stopped by a verifier; alone, answered whatever it is."""
    plan = (
        ("the wish it answers, 1 tool", WISH, [FAN], "bench", ("local", "confident")),
        ("the same, 5 tools", WISH, TOOLS, "bench", ("local", "confident")),
        ("another wish, 5 tools", OTHER_WISH, TOOLS, "bench", ("upstream", "ungrounded")),
        ("another wish, Needle alone", OTHER_WISH, TOOLS, name, ("local", "local-model")),
    )
    for title, text, tools, model, expected in plan:
        before = stand.cpu_s(pid)
        row = scene(title, [client.ask(text, tools, model) for _ in range(requests)], expected)
        yield {**row, "worker CPU s": round((stand.cpu_s(pid) - before) / requests, 2)}


def hasty(client):
    """With a deadline that is too short, everything is forwarded when it has passed, and the engine comes back."""
    asked, back = [], []
    for _ in range(HASTY_REQUESTS):
        wait_ready(client)
        asked.append(client.ask(WISH, TOOLS))
        began = time.perf_counter()
        wait_ready(client)
        back.append(time.perf_counter() - began)
    return scene("a deadline that is too short", asked, ("upstream", "engine-timeout")), statistics.median(back)


def wait_ready(client, seconds=30.0):
    until = time.perf_counter() + seconds
    while client.get("/readyz")["engine"]["state"] != "ready":
        if time.perf_counter() > until:
            raise SystemExit("the engine did not come back")
        time.sleep(0.005)


def run(model, requests, short_s):
    rows = []
    with stand.upstream() as upstream:
        with proxies.router(upstream, CONFIG.format(model=model, deadline_s=60)) as router:
            client = Client(router.port)
            wait_ready(client)
            (pid,) = client.get("/-/status.json")["engine"]["pids"]
            rows += patient(client, pid, requests, model.stem)
            rss_mb = stand.rss_mb(pid)
        with proxies.router(upstream, CONFIG.format(model=model, deadline_s=short_s)) as router:
            client = Client(router.port)
            row, back_s = hasty(client)
            restarts = client.get("/-/status.json")["engine"]["restarts"]
            rows.append(row)
    print(stand.table(rows))
    print(
        f"\nworker: {rss_mb:.0f} MB; with {short_s:g} s: {restarts} restarts, ready again after {back_s:.2f} s (median)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--requests", type=int, default=5)
    parser.add_argument("--deadline", type=float, default=0.2, help="seconds; shorter than a decision takes")
    args = parser.parse_args()
    run(args.model.resolve(), args.requests, args.deadline)


if __name__ == "__main__":
    main()
