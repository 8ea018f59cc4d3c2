"""Processes on their own cores, and what they cost, for the benchmark scripts."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pinned(core, *command):
    """`command`, bound to a core where the system has taskset and more than one core."""
    if shutil.which("taskset") and (os.cpu_count() or 1) > 1:
        return ["taskset", "-c", str(core), *command]
    return list(command)


@contextlib.contextmanager
def process(core, *command, cwd=None, env=None):
    """A child with its output thrown away: a pipe that nobody reads would fill and stop it."""
    child = subprocess.Popen(
        pinned(core, *command),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield child
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        child.kill()
        child.wait()


def wait_for(url, seconds=10.0):
    """Seconds until `url` answers 200."""
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
            if answer.status == 200:
                return time.perf_counter() - started
        time.sleep(0.01)
    raise SystemExit(f"{url} did not answer within {seconds} s")


def engine_of(port):
    """What the router says of its engine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/status.json", timeout=5) as answer:
        return json.load(answer)["engine"]


def wait_for_engine(port, seconds=30.0, state="ready"):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        if engine_of(port)["state"] == state:
            return
        time.sleep(0.02)
    raise SystemExit(f"the engine did not become {state}: {engine_of(port)}")


@contextlib.contextmanager
def upstream():
    port = free_port()
    with process(0, sys.executable, str(HERE / "upstream.py"), str(port)):
        wait_for_port(port)
        yield port


def wait_for_port(port, seconds=10.0):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    raise SystemExit(f"nothing listens on port {port}")


def load(port, connections, seconds, kind, fields=()):
    """One run of the load generator, on the load's core."""
    address = f"127.0.0.1:{port}"
    command = [sys.executable, str(HERE / "load.py"), address, str(connections), str(seconds), kind, *fields]
    done = subprocess.run(pinned(0, *command), check=True, capture_output=True, timeout=seconds + 60)
    return json.loads(done.stdout)


def tree(pid):
    """`pid` and every process below it."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += tree(int(child))
    return found


def cpu_s(pid):
    """CPU seconds of a process, those below it, and all their threads, from the scheduler's own account."""
    total = 0
    for process_id in tree(pid):
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{process_id}/task").iterdir():
                with contextlib.suppress(OSError):
                    total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def rss_mb(pid):
    """Resident memory of one process, in MB (2**20 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def table(rows):
    """Rows of dicts as an aligned text table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
