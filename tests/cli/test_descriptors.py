"""A router that has run out of file descriptors goes on with what it has, says so once, and recovers."""

import contextlib
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.cli.conftest import until

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prlimit and /proc")
COMPLAINT = "no file descriptor is left"
#: Connections that the router has descriptors for.
SPARE = 8
ASK = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def answered(sock):
    """Whether a request on this connection is answered."""
    with contextlib.suppress(OSError):
        sock.sendall(ASK)
        return sock.recv(65536).startswith(b"HTTP/1.1 200 ")
    return False


def test_without_descriptors_open_connections_go_on_and_the_log_says_it_once(cli):
    settings = ("--port", "0", "--upstream", "http://127.0.0.1:9/v1", "--set", "engine.backend=rust")
    with cli.serving(*settings, "--set", "engine.model=tiny") as serving:
        place = urlsplit(serving.url)

        def connect():
            sock = opened.enter_context(socket.create_connection((place.hostname, place.port), 5))
            sock.settimeout(5)
            return sock

        def new_ones_are_served():
            with contextlib.closing(connect()) as sock:
                return answered(sock)

        with contextlib.ExitStack() as opened:
            first = connect()
            assert answered(first)
            until(lambda: b'"ready"' in serving.get("/readyz")[1])
            pid = serving.process.pid
            limit = len(list(Path(f"/proc/{pid}/fd").iterdir())) + SPARE
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, 4096))
            for _ in range(4 * SPARE):
                connect()
            until(lambda: COMPLAINT in serving.log.read_text(), serving.log.read_text)
            assert answered(first)
            # As long as they last, nothing more is said of it: neither by the next sweeps nor at the next connection.
            connect()
            assert answered(first)
        with contextlib.ExitStack() as opened:
            until(new_ones_are_served, serving.log.read_text)
        said = serving.log.read_text()
        assert said.count(COMPLAINT) == 1
        assert "Traceback" not in said
