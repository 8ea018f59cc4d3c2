"""Where a value comes from, and that every problem is told at once, in words that name the key."""

import json

import pytest

from needle_policies.registry import BUILT_IN
from needle_router.config import Config, load, load_config
from needle_router.config.keys import KEYS
from needle_router.errors import ConfigError


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def environ(tmp_path, **variables):
    return {"HOME": str(tmp_path), **variables}


def write(tmp_path, text, name="needle-router.toml"):
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def problems(text="", tmp_path=None, variables=None, flags=None):
    file = write(tmp_path, text, "given.toml")
    with pytest.raises(ConfigError) as caught:
        load_config(file, environ={"HOME": str(tmp_path), **(variables or {})}, flags=flags or {})
    return [line.replace(f" (file {file})", "").replace(str(file), "given.toml") for line in caught.value.problems]


def test_without_file_variables_or_flags_everything_is_the_default(tmp_path):
    loaded = load(environ=environ(tmp_path))
    assert loaded.config == Config()
    assert loaded.path is None
    assert set(loaded.origins.values()) == {"default"}
    assert set(loaded.origins) == set(KEYS)


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(tmp_path):
    file = write(tmp_path, "[server]\nport = 1001\nmax_body_mb = 7\nexpose = 'none'\n[engine]\nworkers = 2")
    variables = environ(tmp_path, NEEDLE_ROUTER_SERVER_PORT="1002", NEEDLE_ROUTER_SERVER_MAX_BODY_MB="8")
    loaded = load(file, environ=variables, flags={"server.port": 1003})
    assert (loaded.config.server.port, loaded.origins["server.port"]) == (1003, "flag --port")
    assert (loaded.config.server.max_body_mb, loaded.origins["server.max_body_mb"]) == (
        8.0,
        "env NEEDLE_ROUTER_SERVER_MAX_BODY_MB",
    )
    assert (loaded.config.server.expose, loaded.origins["server.expose"]) == ("none", f"file {file}")
    assert loaded.config.engine.workers == 2
    assert (loaded.config.server.host, loaded.origins["server.host"]) == ("127.0.0.1", "default")


def test_files_are_looked_for_in_the_documented_order(tmp_path):
    user = write(tmp_path, "[server]\nport = 1", ".config/needle-router/config.toml")
    assert load(environ=environ(tmp_path)).path == user
    xdg = write(tmp_path, "[server]\nport = 2", "xdg/needle-router/config.toml")
    assert load(environ=environ(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "xdg"))).path == xdg
    here = write(tmp_path, "[server]\nport = 3")
    assert load(environ=environ(tmp_path)).path == here
    named = write(tmp_path, "[server]\nport = 4", "named.toml")
    with_variable = environ(tmp_path, NEEDLE_ROUTER_CONFIG=str(named))
    assert load(environ=with_variable).config.server.port == 4
    given = write(tmp_path, "[server]\nport = 5", "given.toml")
    assert load(given, environ=with_variable).config.server.port == 5


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        pytest.param("NEEDLE_ROUTER_MODE", "shadow", "mode", "shadow", id="choice"),
        pytest.param("NEEDLE_ROUTER_UPSTREAM", "http://a/v1", "upstream.base_url", "http://a/v1", id="short name"),
        pytest.param("NEEDLE_ROUTER_UPSTREAM_BASE_URL", "http://a", "upstream.base_url", "http://a", id="full name"),
        pytest.param("NEEDLE_ROUTER_SERVER_API_KEYS", "a, b,", "server.api_keys", ("a", "b"), id="list with commas"),
        pytest.param("NEEDLE_ROUTER_SERVER_API_KEYS", '["a,b"]', "server.api_keys", ("a,b",), id="list as JSON"),
        pytest.param("NEEDLE_ROUTER_SERVER_API_KEYS", "", "server.api_keys", (), id="empty list"),
        pytest.param("NEEDLE_ROUTER_EXTRACT_LOCAL", "off", "extract.local", False, id="off"),
        pytest.param("NEEDLE_ROUTER_LEDGER_CONTENT", "YES", "ledger.content", True, id="yes"),
        pytest.param("NEEDLE_ROUTER_ENGINE_DEADLINE_S", "1.5", "engine.deadline_s", 1.5, id="number"),
        pytest.param(
            "NEEDLE_ROUTER_POLICY", '[{"kind": "guards"}]', "policy", ({"kind": "guards"},), id="policies as JSON"
        ),
    ],
)
def test_each_kind_of_key_can_be_a_variable(tmp_path, name, text, path, value):
    loaded = load(environ=environ(tmp_path, **{name: text}))
    section, _, key = path.rpartition(".")
    assert getattr(getattr(loaded.config, section) if section else loaded.config, key) == value
    assert loaded.origins[path] == f"env {name}"


def test_every_key_has_a_variable_of_its_own(tmp_path):
    spelled = {
        "prices": '{"m": {"input": 1, "output": 2}}',
        "policy": '[{"kind": "guards"}]',
        "server.api_keys": "k",
        "server.allowed_hosts": "a.example,b.example",
        "server.allowed_origins": "https://a.example",
        "upstream.base_url": "http://127.0.0.1:9/v1",
        "upstream.fallback_urls": "http://127.0.0.1:10/v1",
        "engine.backend": "rust",
        "engine.model": "tiny",
    }
    variables = {}
    for key in KEYS.values():
        default = json.dumps(key.default) if isinstance(key.default, (bool, int, float)) else key.default
        variables[key.env] = spelled.get(key.path, default)
    loaded = load(environ=environ(tmp_path, **variables))
    assert all(loaded.origins[key.path] == f"env {key.env}" for key in KEYS.values())


def test_prices_come_from_tables_of_the_file(tmp_path):
    write(tmp_path, '[prices."gpt-4.1"]\ninput = 2\noutput = 8.0\n')
    price = load_config(environ=environ(tmp_path)).prices["gpt-4.1"]
    assert (price.input, price.output, price.cached_input) == (2.0, 8.0, None)


def test_openai_base_url_is_the_upstream_only_when_nothing_else_names_one(tmp_path):
    openai = environ(tmp_path, OPENAI_BASE_URL="http://fallback/v1")
    loaded = load(environ=openai)
    assert loaded.config.upstream.base_url == "http://fallback/v1"
    assert loaded.origins["upstream.base_url"] == "env OPENAI_BASE_URL"
    assert load_config(environ={**openai, "NEEDLE_ROUTER_UPSTREAM": "http://mine"}).upstream.base_url == "http://mine"
    assert load_config(environ=openai, flags={"upstream.base_url": ""}).upstream.base_url == ""
    write(tmp_path, "[upstream]\nbase_url = ''")
    assert load_config(environ=openai).upstream.base_url == ""


def test_inside_an_app_openai_base_url_is_no_upstream_and_listening_is_not_checked(tmp_path):
    variables = environ(tmp_path, OPENAI_BASE_URL="http://127.0.0.1:8088/v1", NEEDLE_ROUTER_SERVER_HOST="0.0.0.0")
    assert load_config(environ=variables, embedded=True).upstream.base_url == ""


def test_openai_api_key_is_read_only_for_a_key_that_is_to_be_injected(tmp_path):
    openai = environ(tmp_path, OPENAI_API_KEY="sk-env", NEEDLE_ROUTER_SERVER_API_KEYS="router-key")
    assert load_config(environ=openai).upstream.api_key == ""
    injected = load(environ={**openai, "NEEDLE_ROUTER_UPSTREAM_INJECT_KEY": "on"})
    assert injected.config.upstream.api_key == "sk-env"
    assert injected.origins["upstream.api_key"] == "env OPENAI_API_KEY"
    own = {**openai, "NEEDLE_ROUTER_UPSTREAM_INJECT_KEY": "on", "NEEDLE_ROUTER_UPSTREAM_API_KEY": "sk-own"}
    assert load_config(environ=own).upstream.api_key == "sk-own"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("[server]\nprot = 1", "server.prot: unknown key, did you mean 'port'?", id="typo"),
        pytest.param("[sever]\nport = 1", "sever: unknown key, did you mean 'server'?", id="typo of a section"),
        pytest.param("port = 1", "port: unknown key, did you mean 'server.port'?", id="key of a section"),
        pytest.param("[engine]\nzzz = 1", "engine.zzz: unknown key", id="nothing near"),
        pytest.param("[server]\nport = '80'", 'server.port: expected a whole number, got "80"', id="text for number"),
        pytest.param("[server]\nport = true", "server.port: expected a whole number, got true", id="bool for number"),
        pytest.param("[server]\nport = 1.5", "server.port: expected a whole number, got 1.5", id="half a port"),
        pytest.param("[extract]\nlocal = 1", "extract.local: expected true or false, got 1", id="number for bool"),
        pytest.param("[engine]\nscript = 1", "engine.script: expected a text, got 1", id="number for text"),
        pytest.param("server = 1", "server: expected a table, [server], got a single value", id="value for table"),
        pytest.param(
            "mode = 'onn'", "mode: expected one of off, shadow, on, got \"onn\", did you mean 'on'?", id="choice"
        ),
        pytest.param(
            "[policy]\nkind = 'guards'",
            'policy: expected a list of tables, [[policy]], got {"kind": "guards"}',
            id="single policy table",
        ),
        pytest.param(
            "[server]\napi_keys = 'sk-canary'",
            "server.api_keys: expected a list of texts, got something else (str)",
            id="a secret is not shown",
        ),
        pytest.param("[prices.m]\ninput = 1", 'prices."m".output: missing (USD per million tokens)', id="half a price"),
        pytest.param("[engine]\ndeadline_s = nan", "engine.deadline_s: expected a finite number, got nan", id="nan"),
        pytest.param("[engine\n", "given.toml: not valid TOML: ", id="syntax"),
    ],
)
def test_each_fault_of_a_file_is_one_line_that_names_the_key(tmp_path, text, line):
    found = problems(text, tmp_path)
    assert len(found) == 1
    assert found[0] == line or (line.endswith(": ") and found[0].startswith(line) and "line 1" in found[0])


def test_all_faults_of_all_sources_are_told_at_once(tmp_path):
    text = """
        mode = "maybe"
        [server]
        prot = 1
        port = 70000
        [upstream]
        base_url = "ftp://x"
        [engine]
        workers = 0
        [prices.m]
        inptu = 1
        output = "x"
        [[policy]]
        kind = "gards"
        [[policy]]
        kind = "threshold"
        minimum = 2
        """
    variables = {"NEEDLE_ROUTER_SEVER_PORT": "1", "NEEDLE_ROUTER_EXTRACT_LOCAL": "perhaps"}
    assert problems(text, tmp_path, variables, {"engine.bakend": "rust", "ledger.retention_days": "soon"}) == [
        'mode: expected one of off, shadow, on, got "maybe"',
        "server.prot: unknown key, did you mean 'port'?",
        "prices.\"m\".inptu: unknown key, did you mean 'input'?",
        'prices."m".output: expected a number, got "x"',
        'prices."m".input: missing (USD per million tokens)',
        'extract.local: expected true or false, got "perhaps" (env NEEDLE_ROUTER_EXTRACT_LOCAL)',
        "NEEDLE_ROUTER_SEVER_PORT: unknown variable, did you mean 'NEEDLE_ROUTER_SERVER_PORT'?",
        "engine.bakend: unknown key, did you mean 'backend'? (flag --set)",
        'ledger.retention_days: expected a number, got "soon" (flag --set)',
        "server.port: 70000 must be at most 65535",
        "engine.workers: 0 must be at least 1",
        "upstream.base_url: must begin with http:// or https://",
        f"policy[0].kind: unknown kind 'gards', did you mean 'guards'?; the kinds are {', '.join(sorted(BUILT_IN))}",
        "policy[1].minimum: 2 is not a number from 0 to 1",
    ]


def test_a_file_that_was_asked_for_and_is_not_there_is_a_problem(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "absent.toml", environ=environ(tmp_path))
    assert caught.value.problems == (f"{tmp_path / 'absent.toml'}: cannot be read: No such file or directory",)


def test_two_variables_for_the_upstream_must_agree(tmp_path):
    variables = environ(tmp_path, NEEDLE_ROUTER_UPSTREAM="http://a", NEEDLE_ROUTER_UPSTREAM_BASE_URL="http://b")
    with pytest.raises(ConfigError, match="NEEDLE_ROUTER_UPSTREAM and NEEDLE_ROUTER_UPSTREAM_BASE_URL differ"):
        load_config(environ=variables)
    variables["NEEDLE_ROUTER_UPSTREAM_BASE_URL"] = "http://a"
    assert load_config(environ=variables).upstream.base_url == "http://a"


def test_the_variables_of_a_kubernetes_service_of_the_same_name_are_left_alone(tmp_path):
    links = {
        "NEEDLE_ROUTER_SERVICE_HOST": "10.0.0.7",
        "NEEDLE_ROUTER_SERVICE_PORT": "8088",
        "NEEDLE_ROUTER_SERVICE_PORT_HTTP": "8088",
        "NEEDLE_ROUTER_PORT": "tcp://10.0.0.7:8088",
        "NEEDLE_ROUTER_PORT_8088_TCP": "tcp://10.0.0.7:8088",
        "NEEDLE_ROUTER_PORT_8088_TCP_ADDR": "10.0.0.7",
    }
    assert load_config(environ=environ(tmp_path, **links)) == Config()
    with pytest.raises(ConfigError, match="NEEDLE_ROUTER_PORT: unknown variable"):
        load_config(environ=environ(tmp_path, NEEDLE_ROUTER_PORT="8088"))
