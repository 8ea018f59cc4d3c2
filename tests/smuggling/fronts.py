"""nginx and HAProxy in front of a router, as real processes with the fewest settings that make them proxies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from tests.servers import address, free_port

NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log; {user}
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_timeout 200ms; lingering_close off;
  client_header_timeout 500ms; client_body_timeout 500ms; large_client_header_buffers 4 200k;
  upstream router {{ server {router}; keepalive 8; }}
  server {{ listen 127.0.0.1:{port}; underscores_in_headers on; location / {{ proxy_pass http://router;
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; proxy_buffering off; }} }} }}
"""
HAPROXY = """defaults
  mode http
  timeout connect 2s
  timeout client 500ms
  timeout server 5s
  timeout http-request 500ms
  timeout http-keep-alive 200ms
frontend front
  bind 127.0.0.1:{port}
  default_backend router
backend router
  http-reuse always
  server one {router}
"""
#: name -> configuration and command line.
FRONTS = {
    "nginx": (NGINX, ["nginx", "-c", "{file}"]),
    "haproxy": (HAPROXY, ["haproxy", "-db", "-q", "-f", "{file}"]),
}


@contextlib.asynccontextmanager
async def in_front(name: str, router_url: str, folder: Path) -> AsyncIterator[str]:
    """The URL under which `router_url` is reached through that server; itself where the name is "direct"."""
    if name == "direct":
        yield router_url
        return
    text, command = FRONTS[name]
    host, router_port = address(router_url)
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    file = folder / "front.conf"
    file.write_text(text.format(folder=folder, port=port, router=f"{host}:{router_port}", user=user))
    binary = shutil.which(command[0])
    assert binary is not None
    process = subprocess.Popen(  # noqa: ASYNC220  # as quick as any start
        [binary, *(part.format(file=file) for part in command[1:])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await _listening(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def _listening(port: int, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(10):
        while process.poll() is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return
    raise AssertionError(f"it ended with {process.returncode}")
