"""The pieces of the command line that are plain functions."""

import logging
import socket

import pytest

from needle_router.cli.exits import Exit, Stop
from needle_router.cli.listen import listen, url_of
from needle_router.cli.logs import OneLine, printable
from needle_router.cli.options import Settings
from needle_router.cli.server import uvicorn_options
from needle_router.cli.strict import StrictProtocol
from needle_router.cli.strict_gate import Gate
from needle_router.config import Config
from needle_router.config.keys import FLAGS, KEYS


def test_exit_codes_are_the_documented_ones():
    assert {code.name: code.value for code in Exit} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "PORT_IN_USE": 3,
        "ENGINE_MISSING": 4,
    }


def test_every_flag_sets_an_existing_key_and_has_a_field():
    assert set(FLAGS) <= set(KEYS)
    every = Settings(**{flag.removeprefix("--").replace("-", "_"): "x" for flag in FLAGS.values()})
    assert every.flags() == dict.fromkeys(FLAGS, "x")


def test_a_flag_of_its_own_beats_set():
    settings = Settings(port="2", set=("server.port=1", "ledger.path=a=b"))
    assert settings.flags() == {"server.port": "2", "ledger.path": "a=b"}


def test_the_socket_listens_and_sends_without_delay():
    with listen("127.0.0.1", 0) as sock:
        # asyncio turns Nagle's algorithm off only for sockets that name their protocol.
        assert sock.proto == socket.IPPROTO_TCP
        assert not sock.get_inheritable()
        with socket.create_connection(sock.getsockname(), 5):
            pass
        assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"


def test_a_taken_port_stops_with_3():
    with listen("127.0.0.1", 0) as sock, pytest.raises(Stop) as stopped:
        listen("127.0.0.1", sock.getsockname()[1])
    assert stopped.value.code == Exit.PORT_IN_USE


def test_log_lines_cannot_be_forged():
    formatter = OneLine()
    record = logging.LogRecord("n", logging.WARNING, "f", 1, "tool %s", ("a\nb\x1b[31m\u202e",), None)
    assert formatter.format(record).endswith("Z warning n: tool a\\nb\\x1b[31m\\u202e")
    assert printable("plain") == "plain"


def test_uvicorn_adds_nothing_to_answers_and_believes_no_forwarded_header():
    gate = Gate()
    options = uvicorn_options(Config(), gate)
    off = ("access_log", "date_header", "server_header", "proxy_headers")
    assert [name for name in off if options[name]] == []
    assert (options["http"].func, options["http"].keywords) == (StrictProtocol, {"gate": gate})
    assert options["timeout_graceful_shutdown"] == 600
