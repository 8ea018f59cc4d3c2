"""The load generator against the mock upstream: real processes, one request a connection, no time that has to hold."""

import os
import subprocess
import sys

import load
import pytest
import stand


@pytest.fixture(scope="module")
def upstream():
    with stand.upstream() as port:
        yield port


@pytest.mark.parametrize("kind", ["json", "other", "tools", "stream", "paced", "slow"])
def test_every_kind_of_request_is_answered(upstream, kind):
    found = stand.load(upstream, 3, 0, kind)
    assert (found["requests"], found["errors"]) == (3, 0)
    assert found["first_p50_ms"] <= found["p50_ms"] <= found["p99_ms"]


def test_chunks_that_carry_their_time_are_timed(upstream):
    assert stand.load(upstream, 1, 0, "paced")["transit_p50_ms"] > 0
    assert stand.load(upstream, 1, 0, "json")["transit_p50_ms"] is None


def test_a_connection_that_is_cut_off_is_an_error():
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); s.accept()"
    )
    with subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True) as child:
        found = stand.load(int(child.stdout.readline()), 1, 0, "json")
        assert child.wait(10) == 0
    assert (found["requests"], found["errors"]) == (0, 1)


def test_a_request_is_about_two_kilobytes_with_the_fields_that_were_asked_for():
    request = load.request_of("json", ["x-needle-mode:off"])
    assert b"\r\nx-needle-mode: off\r\n\r\n{" in request
    assert 1900 < len(request) < 2300


@pytest.mark.parametrize(("share", "value"), [(0.5, 3), (0.99, 4), (0.0, 1)])
def test_a_share_of_all_values_lies_below_it(share, value):
    assert load.share_of([4, 2, 1, 3], share) == value


def test_cpu_and_processes_below_a_process_are_its_own():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in stand.tree(os.getpid())
        child.stdin.close()
    assert child.pid not in stand.tree(os.getpid())
    assert stand.cpu_s(os.getpid()) > 0
