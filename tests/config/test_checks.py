"""What a well-typed configuration can still have wrong, at the exact boundaries."""

import msgspec
import pytest

from needle_router.config import Config, check
from needle_router.config.checks import RANGES, is_loopback
from needle_router.config.keys import KEYS
from needle_router.config.load import assemble
from needle_router.config.schema import Price


def faults(**values):
    return check(assemble({path.replace("__", "."): value for path, value in values.items()}))


def test_the_defaults_have_no_fault():
    assert check(Config()) == []


@pytest.mark.parametrize(
    ("path", "good", "bad", "line"),
    [
        ("server.port", 0, -1, "server.port: -1 must be at least 0"),
        ("server.port", 65535, 65536, "server.port: 65536 must be at most 65535"),
        ("server.max_body_mb", 0.001, 0.0, "server.max_body_mb: 0.0 must be greater than 0"),
        ("server.drain_timeout_s", 0.0, -0.1, "server.drain_timeout_s: -0.1 must be at least 0"),
        ("server.header_timeout_s", 0.1, 0.0, "server.header_timeout_s: 0.0 must be greater than 0"),
        ("server.body_timeout_s", 0.1, 0.0, "server.body_timeout_s: 0.0 must be greater than 0"),
        ("server.idle_timeout_s", 0.1, 0.0, "server.idle_timeout_s: 0.0 must be greater than 0"),
        ("server.max_header_kb", 1.0, 0.9, "server.max_header_kb: 0.9 must be at least 1"),
        ("server.max_header_kb", 1024.0, 1025.0, "server.max_header_kb: 1025.0 must be at most 1024"),
        ("server.max_headers", 10, 9, "server.max_headers: 9 must be at least 10"),
        ("server.max_url_kb", 0.1, 0.0, "server.max_url_kb: 0.0 must be greater than 0"),
        ("server.max_url_kb", 1024.0, 1025.0, "server.max_url_kb: 1025.0 must be at most 1024"),
        ("server.max_connections", 1, 0, "server.max_connections: 0 must be at least 1"),
        ("upstream.connect_timeout_s", 0.1, 0.0, "upstream.connect_timeout_s: 0.0 must be greater than 0"),
        ("upstream.first_byte_timeout_s", 0.1, 0.0, "upstream.first_byte_timeout_s: 0.0 must be greater than 0"),
        ("upstream.idle_timeout_s", 0.1, 0.0, "upstream.idle_timeout_s: 0.0 must be greater than 0"),
        ("engine.workers", 1, 0, "engine.workers: 0 must be at least 1"),
        ("engine.workers", 256, 257, "engine.workers: 257 must be at most 256"),
        ("engine.queue_limit", 1, 0, "engine.queue_limit: 0 must be at least 1"),
        ("engine.deadline_s", 0.01, 0.0, "engine.deadline_s: 0.0 must be greater than 0"),
        ("engine.max_new_tokens", 1, 0, "engine.max_new_tokens: 0 must be at least 1"),
        ("engine.max_replay_steps", 1, 0, "engine.max_replay_steps: 0 must be at least 1"),
        ("engine.buffer_bytes", 4096, 4095, "engine.buffer_bytes: 4095 must be at least 4096"),
        ("engine.cache_entries", 0, -1, "engine.cache_entries: -1 must be at least 0"),
        ("ledger.retention_days", 0.5, 0.0, "ledger.retention_days: 0.0 must be greater than 0"),
    ],
)
def test_numbers_have_a_range(path, good, bad, line):
    assert faults(**{path: good}) == []
    assert faults(**{path: bad}) == [line]


def test_every_numeric_key_has_a_range():
    numeric = {path for path, key in KEYS.items() if key.type in (int, float)}
    assert set(RANGES) == numeric


def test_a_price_below_zero_is_refused():
    wrong = faults(prices={"m": Price(input=-1, output=0)})
    assert wrong == ['prices."m".input: -1 must be a finite number of at least 0 (USD per million tokens)']


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        pytest.param("http://h", "", id="host only"),
        pytest.param("https://h:8443/v1/", "", id="port and path"),
        pytest.param("http://[::1]:9/v1", "", id="IPv6"),
        pytest.param("h:8080", "must begin with http:// or https://", id="no scheme"),
        pytest.param("http://", "has no host name", id="no host"),
        pytest.param("http://h:99999", "is not a URL", id="port out of range"),
        pytest.param("http://h:0", "port 0 cannot be connected to", id="port 0"),
        pytest.param(
            "http://u:canary@h", "must not hold a user or password; use upstream.api_key", id="password in the URL"
        ),
        pytest.param("http://h/v1?key=canary", "must not have a query", id="query"),
        pytest.param("http://h/v1?", "must not have a query", id="empty query"),
        pytest.param("http://h/v1#x", "must not have a fragment", id="fragment"),
        pytest.param("http://h/a b", "holds a blank or control character", id="blank"),
        pytest.param("http://h\\x", "holds a blank or control character", id="backslash"),
        pytest.param("http://h/a/../b", "must not have dot segments", id="dot segments"),
    ],
)
def test_an_upstream_address_is_plain(url, fault):
    found = faults(upstream__base_url=url)
    assert found == ([f"upstream.base_url: {fault}"] if fault else [])
    assert "canary" not in "".join(found)


@pytest.mark.parametrize(
    ("url", "host", "same"),
    [
        ("http://127.0.0.1:8088/v1", "127.0.0.1", True),
        ("http://localhost:8088", "127.0.0.1", True),
        ("http://LOCALHOST:8088", "127.0.0.1", True),
        ("http://[::1]:8088", "127.0.0.1", True),
        ("http://127.0.0.1:8089/v1", "127.0.0.1", False),
        ("http://example.org:8088/v1", "127.0.0.1", False),
        ("http://10.1.2.3:8088/v1", "10.1.2.3", True),
    ],
)
def test_an_upstream_that_is_the_router_itself_is_a_ring(url, host, same):
    found = faults(upstream__base_url=url, server__host=host, server__api_keys=("k",))
    assert bool(found) == same
    assert all("is the router itself" in line for line in found)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "router.example.org"])
def test_a_port_that_others_can_reach_needs_a_key_or_a_word(host):
    assert faults(server__host=host) == [
        f"server.host: {host} can be reached by others; set server.api_keys, "
        "or server.allow_unauthenticated = true if something in front checks who calls"
    ]
    assert faults(server__host=host, server__api_keys=("k",)) == []
    assert faults(server__host=host, server__allow_unauthenticated=True) == []


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("127.0.0.1.example.org", False),
        ("0.0.0.0", False),
    ],
)
def test_loopback_is_told_from_the_address(host, loopback):
    assert is_loopback(host) is loopback


def test_an_injected_key_must_exist_and_be_guarded():
    no_key = "upstream.inject_key: there is no key to inject; set upstream.api_key or OPENAI_API_KEY"
    open_relay = "upstream.inject_key: needs server.api_keys, or whoever reaches the port spends your key"
    assert faults(upstream__inject_key=True) == [no_key, open_relay]
    assert faults(upstream__inject_key=True, upstream__api_key="sk-x") == [open_relay]
    assert faults(upstream__inject_key=True, upstream__api_key="sk-x", server__api_keys=("k",)) == []


@pytest.mark.parametrize("key", ["", "a b", "tab\t", "ключ"])
def test_a_router_key_must_be_one_that_a_header_can_carry(key):
    assert faults(server__api_keys=("good", key)) == ["server.api_keys[1]: must be printable ASCII without blanks"]


def test_backend_and_model_must_fit(tmp_path):
    weights = tmp_path / "mine.cact"
    assert faults(engine__backend="rust", engine__model="tiny") == []
    assert faults(engine__backend="native", engine__model="needle-3") == []
    assert faults(engine__model="tiny") == [
        'engine.model: backend "native" takes needle-2, needle-3 or the path of a .cact file, '
        "not 'tiny'; 'tiny' needs backend = \"rust\""
    ]
    assert faults(engine__backend="rust", engine__model="needle-2") == []
    assert faults(engine__backend="rust", engine__model="needle-9") == [
        "engine.model: backend \"rust\" takes tiny, needle-2, needle-3 or the path of a .cact file, not 'needle-9'"
    ]
    assert faults(engine__model=str(weights)) == [f"engine.model: there is no file {weights}"]
    weights.write_bytes(b"")
    assert faults(engine__model=str(weights)) == []


def test_a_scripted_engine_needs_a_script_that_is_a_json_object(tmp_path):
    script = tmp_path / "script.json"
    assert faults(engine__backend="scripted") == ['engine.script: backend "scripted" needs the path of a JSON file']
    absent = faults(engine__backend="scripted", engine__script=str(script))
    assert absent == [f"engine.script: {script} cannot be read: No such file or directory"]
    script.write_text("{")
    assert faults(engine__backend="scripted", engine__script=str(script))[0].startswith(
        f"engine.script: {script} is not JSON: "
    )
    script.write_text("[]")
    assert faults(engine__backend="scripted", engine__script=str(script)) == [
        f"engine.script: {script} must hold a JSON object"
    ]
    script.write_text('{"envelopes": []}')
    assert faults(engine__backend="scripted", engine__script=str(script)) == []


def test_an_embedded_router_is_not_asked_about_listening():
    config = msgspec.structs.replace(Config(), server=msgspec.structs.replace(Config().server, host="0.0.0.0"))
    assert check(config, embedded=True) == []


def test_a_tool_index_needs_its_file_and_the_native_backend(tmp_path):
    index = tmp_path / "tools.idx"
    missing = f"engine.tool_index: there is no file {index}"
    assert faults(engine__tool_index=str(index)) == [missing]
    index.write_bytes(b"")
    assert faults(engine__tool_index=str(index)) == []
    rust = faults(engine__backend="rust", engine__model="tiny", engine__tool_index=str(index))
    assert rust == ['engine.tool_index: only backend "native" has one, not "rust"']


def test_going_on_after_tool_results_needs_a_session_that_remembers(tmp_path):
    script = tmp_path / "script.json"
    script.write_text("{}")
    scripted = {"engine__backend": "scripted", "engine__script": str(script), "engine__chain_tool_results": True}
    assert faults(**scripted) == ['engine.chain_tool_results: needs engine.session = "replay", not "isolated"']
    assert faults(**scripted, engine__session="replay") == []
    rust = {"engine__backend": "rust", "engine__model": "tiny", "engine__session": "replay"}
    assert faults(**rust, engine__chain_tool_results=True) == [
        'engine.chain_tool_results: backend "rust" remembers no conversation; backend "native" does'
    ]


def threshold(path):
    return ({"kind": "guards"}, {"kind": "threshold", "certificates": str(path)})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(None, "cannot be read: No such file or directory", id="missing"),
        pytest.param("{", "is not JSON", id="no JSON"),
        pytest.param('{"version": 1}', "has version 1; this router reads 2: calibrate again", id="another version"),
        pytest.param(
            '{"version": 2, "certificates": [{"fingerprint": "a", "per_tool": true, "tools": {"f": {}}}]}',
            "certificates[0].tools.f.threshold must be a number from 0 to 1, not null",
            id="no score",
        ),
    ],
)
def test_a_file_of_certificates_must_be_one(tmp_path, content, problem):
    path = tmp_path / "certificates.json"
    if content is not None:
        path.write_text(content)
    config = assemble({"engine.backend": "rust", "engine.model": "tiny", "policy": threshold(path)})
    assert [line for line in check(config) if line.startswith("policy[1].certificates: ") and problem in line]
    assert check(config, routes=False) == []


def test_a_folder_is_no_file_of_certificates(tmp_path):
    config = assemble({"engine.backend": "rust", "engine.model": "tiny", "policy": threshold(tmp_path)})
    assert check(config) == [f"policy[1].certificates: {tmp_path}: is not a regular file"]
