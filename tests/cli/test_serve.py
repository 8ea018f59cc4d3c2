"""`serve` as a process: the port first, one screen of banner, plain ends."""

import http.client
import json
import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.cli.conftest import until

ALONE = ("--port", "0", "--backend", "rust", "--model", "tiny", "--ledger", "off")


class SlowStream(BaseHTTPRequestHandler):
    """Streams one event, waits for `release`, then ends the answer."""

    release, asked = threading.Event(), threading.Event()

    def do_GET(self):
        self.asked.set()
        self.release.wait(30)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b'data: {"n": 1}\n\n')
        self.wfile.flush()
        self.release.wait(30)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


@pytest.fixture
def upstream():
    SlowStream.release, SlowStream.asked = threading.Event(), threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowStream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    SlowStream.release.set()
    server.shutdown()
    thread.join(10)
    server.server_close()


def post(url):
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True})
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    return connection, connection.getresponse()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_healthz_and_a_signal_ends_it_with_0(cli, number):
    with cli.serving(*ALONE) as router:
        assert router.get("/healthz") == (200, b'{"status":"ok"}')
        router.process.send_signal(number)
        assert router.until_ended() == 0


def test_without_a_command_it_serves(cli):
    with cli.serving(*ALONE[1:], command="--port") as router:
        assert router.get("/healthz")[0] == 200


def test_the_engine_loads_behind_the_open_port(cli):
    with cli.serving(*ALONE) as router:
        state = until(lambda: (s := json.loads(router.get("/readyz")[1]))["engine"]["state"] == "ready" and s)
        assert state["status"] == "ok"


def test_a_missing_engine_does_not_keep_the_proxy_from_serving(cli, upstream):
    with cli.serving("--port", "0", "--upstream", upstream, "--ledger", "off") as router:
        state = until(lambda: (s := json.loads(router.get("/readyz")[1]))["engine"]["state"] == "failed" and s)
        assert state["status"] == "degraded"
        SlowStream.release.set()
        connection, answer = post(router.url)
        assert (answer.status, answer.read()) == (200, b'data: {"n": 1}\n\ndata: [DONE]\n\n')
        connection.close()


def test_the_banner_is_one_screen_without_keys(cli):
    keys = {"NEEDLE_ROUTER_SERVER_API_KEYS": "canary-router", "NEEDLE_ROUTER_UPSTREAM_API_KEY": "canary-upstream"}
    with cli.serving(
        *ALONE, "--upstream", "http://127.0.0.1:9/v1", "--set", "upstream.inject_key=on", **keys
    ) as router:
        text = router.log.read_text()
        assert "canary" not in text
        assert len(text.splitlines()) <= 24
        for line in (
            f"  listening  {router.url}",
            "  upstream   http://127.0.0.1:9 with the configured key",
            "  mode       on: local answers where every check passes, score from 0.85",
            "  engine     tiny (demo model: not Needle's quality) on rust, 1 process, loading behind the open port",
            "  keys       1 router key(s) accepted",
            "  ledger     off",
        ):
            assert line in text.splitlines()


def test_a_port_in_use_ends_with_3_and_says_which(cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = cli("serve", "--port", str(port), "--backend", "rust", "--model", "tiny")
    assert (code, out) == (3, "")
    assert err == (
        f"needle-router: port {port} on 127.0.0.1 is in use; choose another with --port, or stop what listens there\n"
    )


def test_an_address_of_another_machine_ends_with_2(cli):
    # 192.0.2.0/24 is set aside for documentation (RFC 5737): no machine has it.
    code, _, err = cli("serve", "--host", "192.0.2.7", "--set", "server.api_keys=k", "--mode", "off")
    assert (code, err) == (2, "needle-router: server.host: 192.0.2.7 is no address of this machine\n")


def test_reliability_46_a_port_that_others_can_reach_is_not_opened_without_a_key(cli):
    code, _, err = cli(
        "serve", "--host", "0.0.0.0", "--port", "0", "--mode", "off", "--upstream", "http://h.example/v1"
    )
    assert code == 2
    assert "server.host: 0.0.0.0 can be reached by others; set server.api_keys" in err


def test_twenty_running_streams_outlive_the_first_sigterm(cli, upstream):
    with cli.serving("--port", "0", "--upstream", upstream, "--mode", "off", "--ledger", "off") as router:
        streams = [post(router.url) for _ in range(20)]
        assert {answer.read1(100) for _, answer in streams} == {b'data: {"n": 1}\n\n'}
        router.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(router.url))
        assert router.process.poll() is None
        SlowStream.release.set()
        assert {answer.read() for _, answer in streams} == {b"data: [DONE]\n\n"}
        for connection, _ in streams:
            connection.close()
        assert router.until_ended() == 0


def test_a_second_sigterm_ends_at_once(cli, upstream):
    with cli.serving("--port", "0", "--upstream", upstream, "--mode", "off", "--ledger", "off") as router:
        connection, answer = post(router.url)
        assert answer.read1(100) == b'data: {"n": 1}\n\n'
        router.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(router.url))
        router.process.send_signal(signal.SIGTERM)
        router.until_ended(10)
        connection.close()


def test_what_is_not_complete_in_time_ends_as_an_error_and_without_a_traceback(cli, upstream):
    settings = ("--set", "server.drain_timeout_s=0.5", "--mode", "off", "--ledger", "off")
    with cli.serving("--port", "0", "--upstream", upstream, *settings) as router:
        streaming, stream = post(router.url)
        assert stream.read1(100) == b'data: {"n": 1}\n\n'
        waiting = http.client.HTTPConnection(router.url.removeprefix("http://"), timeout=30)
        waiting.request("GET", "/v1/models")
        assert SlowStream.asked.wait(30)
        router.process.send_signal(signal.SIGTERM)
        with pytest.raises(http.client.IncompleteRead) as cut:
            stream.read()
        assert cut.value.partial.startswith(b"\n\ndata: {")
        assert json.loads(cut.value.partial.split(b"data: ")[1])["error"]["code"] == "shutting_down"
        answer = waiting.getresponse()
        assert (answer.status, answer.getheader("retry-after")) == (503, "1")
        assert json.loads(answer.read())["error"]["code"] == "shutting_down"
        for connection in (streaming, waiting):
            connection.close()
        assert router.until_ended() == 0
        log = router.log.read_text()
    assert log.count("warning uvicorn.error: an answer was cut: the server is stopping") == 2
    assert "Traceback" not in log


def test_during_the_delay_readyz_says_503_and_requests_are_still_taken(cli, upstream):
    settings = ("--set", "server.drain_delay_s=2", "--mode", "off", "--ledger", "off")
    with cli.serving("--port", "0", "--upstream", upstream, *settings) as router:
        assert router.get("/readyz")[0] == 200
        router.process.send_signal(signal.SIGTERM)
        status, body = until(lambda: (got := router.get("/readyz"))[0] == 503 and got)
        assert (status, json.loads(body)["status"]) == (503, "draining")
        SlowStream.release.set()
        connection, answer = post(router.url)
        assert answer.read().endswith(b"data: [DONE]\n\n")
        connection.close()
        assert router.until_ended() == 0


def test_no_engine_process_is_left_behind(cli):
    with cli.serving(*ALONE) as router:
        status = until(lambda: (s := json.loads(router.get("/-/status.json")[1]))["engine"]["pids"] and s)
        router.process.send_signal(signal.SIGTERM)
        assert router.until_ended() == 0
        assert [pid for pid in status["engine"]["pids"] if alive(pid)] == []


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def refuses(url):
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionRefusedError:
        return True
    return False
