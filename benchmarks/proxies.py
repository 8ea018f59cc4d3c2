"""The proxies of the comparison, each a process of its own on core 1, in front of the same upstream.

nginx is used where the system has it; LiteLLM and Portkey where `make bench-extras` has set them up, in `.bench`.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import stand

EXTRAS = stand.HERE.parent / ".bench"
#: The engine loads behind the open port and is asked only for requests with tools.
DEFAULT = '[engine]\nbackend = "rust"\nmodel = "tiny"\n'


@dataclass(frozen=True)
class Proxy:
    """A running proxy. `fields` are header fields that it needs; `pid` is None for the upstream itself."""

    name: str
    port: int
    pid: int | None
    version: str = ""
    fields: tuple[str, ...] = ()
    ready_s: float | None = None


@contextlib.contextmanager
def router(upstream_port, config=DEFAULT):
    """The real command, with a configuration of its own."""
    port = stand.free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "needle-router.toml"
        file.write_text(
            f'[upstream]\nbase_url = "http://127.0.0.1:{upstream_port}/v1"\n[server]\nport = {port}\n'
            f'[ledger]\npath = "{folder}/decisions.db"\n{config}'
        )
        command = (sys.executable, "-m", "needle_router", "serve", "--config", str(file))
        started = time.perf_counter()
        with stand.process(1, *command, cwd=folder) as child:
            stand.wait_for(f"http://127.0.0.1:{port}/healthz")
            yield Proxy("needle-router", port, child.pid, ready_s=time.perf_counter() - started)


NGINX = """daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream up {{ server 127.0.0.1:{upstream}; keepalive 256; }}
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://up; proxy_http_version 1.1;
    proxy_set_header Connection ""; proxy_buffering off; }} }} }}
"""


@contextlib.contextmanager
def nginx(upstream_port):
    """nginx as a plain proxy that buffers nothing."""
    port = stand.free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nginx.conf"
        file.write_text(NGINX.format(folder=folder, port=port, upstream=upstream_port))
        with stand.process(1, "nginx", "-c", str(file)) as master:
            stand.wait_for_port(port)
            told = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True, timeout=10).stderr
            yield Proxy("nginx", port, master.pid, told.strip().rpartition("/")[2])


LITELLM = """model_list:
  - model_name: "*"
    litellm_params: {{model: "openai/*", api_base: "http://127.0.0.1:{upstream}/v1", api_key: "sk-bench"}}
"""


#: No look at the network at the start, and no key to check: as little work as it can have.
LITELLM_ENV = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}


@contextlib.contextmanager
def litellm(upstream_port):
    """The LiteLLM proxy with one worker and the price list of its package."""
    port, home = stand.free_port(), EXTRAS / "litellm"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(LITELLM.format(upstream=upstream_port))
        command = (str(home / "bin" / "litellm"), "--config", str(file), "--host", "127.0.0.1", "--port", str(port))
        with stand.process(1, *command, cwd=folder, env=LITELLM_ENV) as child:
            stand.wait_for(f"http://127.0.0.1:{port}/health/liveliness", 120)
            yield Proxy("LiteLLM", port, child.pid, _version_of(home / "bin" / "python", "litellm"))


def _version_of(python, name):
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout.strip()


@contextlib.contextmanager
def portkey(upstream_port):
    """The Portkey gateway; whom to ask stands in each request."""
    port, home = stand.free_port(), EXTRAS / "portkey" / "node_modules" / "@portkey-ai" / "gateway"
    fields = ("x-portkey-provider:openai", f"x-portkey-custom-host:http://127.0.0.1:{upstream_port}/v1")
    command = ("node", str(home / "build" / "start-server.js"), f"--port={port}", "--headless")
    with stand.process(1, *command, cwd=home) as child:
        stand.wait_for_port(port, 30)
        yield Proxy("Portkey", port, child.pid, _version_in(home / "package.json"), fields)


def _version_in(package):
    return json.loads(package.read_text())["version"]


#: Name, how it is started, and whether it is there.
OTHERS = (
    ("nginx", nginx, lambda: shutil.which("nginx") is not None),
    ("LiteLLM", litellm, (EXTRAS / "litellm" / ".ready").exists),
    ("Portkey", portkey, (EXTRAS / "portkey" / ".ready").exists),
)


@contextlib.contextmanager
def others(upstream_port, wanted=None):
    """Those of the other proxies that are installed, running; `wanted` names some of them."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(start(upstream_port))
            for name, start, there in OTHERS
            if there() and (wanted is None or name in wanted)
        ]
