"""A router that has run out of file descriptors goes on with what it has, says so once, and recovers."""

import contextlib
import http.client
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


def answered(client):
    """Whether a request on this connection is answered."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        client.request("GET", "/healthz")
        answer = client.getresponse()
        answer.read()
        return answer.status == 200
    return False


def test_without_descriptors_open_connections_go_on_and_the_log_says_it_once(cli):
    with cli.serving("--port", "0", "--upstream", "http://127.0.0.1:9/v1", "--set", "mode=off") as serving:
        place = urlsplit(serving.url)

        def connect():
            client = http.client.HTTPConnection(place.hostname, place.port, timeout=5)
            opened.callback(client.close)
            client.connect()
            return client

        def complains_at_one_more():
            connect()
            return COMPLAINT in serving.log.read_text()

        def new_ones_are_served():
            with contextlib.closing(connect()) as sock:
                return answered(sock)

        with contextlib.ExitStack() as opened:
            first = connect()
            assert answered(first)
            pid = serving.process.pid
            limit = len(list(Path(f"/proc/{pid}/fd").iterdir())) + SPARE
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, 4096))
            until(complains_at_one_more, serving.log.read_text)
            assert answered(first)
            # As long as they last, nothing more is said of it: neither by the next sweeps nor at the next connection.
            connect()
            assert answered(first)
        with contextlib.ExitStack() as opened:
            until(new_ones_are_served, serving.log.read_text)
        said = serving.log.read_text()
        assert said.count(COMPLAINT) == 1
        assert "Traceback" not in said
