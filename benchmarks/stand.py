"""Processes on their own cores, and what they cost, for the benchmark scripts."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
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
def process(core, *command, cwd=None):
    child = subprocess.Popen(pinned(core, *command), cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield child
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        child.kill()
        child.wait()
        child.stderr.close()


def wait_for(url, seconds=10.0):
    """Seconds until `url` answers 200."""
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
            if answer.status == 200:
                return time.perf_counter() - started
        time.sleep(0.01)
    raise SystemExit(f"{url} did not answer within {seconds} s")


def wait_for_engine(port, seconds=30.0):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            if json.load(answer)["engine"]["state"] == "ready":
                return
        time.sleep(0.02)
    raise SystemExit("the engine did not become ready")


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


@contextlib.contextmanager
def router(upstream_port, config):
    """The real command with a configuration of its own; gives (port, process, seconds until ready)."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "needle-router.toml"
        file.write_text(
            f'[upstream]\nbase_url = "http://127.0.0.1:{upstream_port}/v1"\n[server]\nport = {port}\n'
            f'[ledger]\npath = "{folder}/decisions.db"\n{config}'
        )
        with process(1, sys.executable, "-m", "needle_router", "serve", "--config", str(file), cwd=folder) as child:
            ready_s = wait_for(f"http://127.0.0.1:{port}/healthz")
            yield port, child, ready_s


NGINX = """daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream up {{ server 127.0.0.1:{upstream}; keepalive 128; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://up; proxy_http_version 1.1;
    proxy_set_header Connection ""; proxy_buffering off; }} }} }}
"""


@contextlib.contextmanager
def nginx(upstream_port):
    """nginx as a plain proxy on the router's core; gives (port, worker's pid), or None where it is not installed."""
    if shutil.which("nginx") is None:
        yield None
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nginx.conf"
        file.write_text(NGINX.format(folder=folder, port=port, upstream=upstream_port))
        with process(1, "nginx", "-c", str(file)) as master:
            wait_for_port(port)
            children = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
            yield port, int(children[0])


def load(port, connections, seconds, kind):
    command = pinned(
        0, sys.executable, str(HERE / "load.py"), f"127.0.0.1:{port}", str(connections), str(seconds), kind
    )
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=seconds + 60).stdout)


def cpu_s(pid):
    """CPU seconds of a process and all its threads."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def rss_mb(pid):
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
