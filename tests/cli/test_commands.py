"""Commands as processes: what they print, where, and the exit code."""

import json
import socket

import pytest

from needle_router import __version__
from needle_router.config.keys import FLAGS

LIGHTS = {
    "type": "function",
    "function": {
        "name": "set_lights",
        "description": "Turn a room's lights on or off",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
            "required": ["room", "on"],
        },
    },
}
TINY = ("--backend", "rust", "--model", "tiny")


def request(text, **extra):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "tools": [LIGHTS], **extra}
    return json.dumps(body).encode()


# ------------------------------------------------------------------------------------------------- help and versions


def test_help_names_every_command(cli):
    code, out, err = cli("--help")
    assert (code, err) == (0, "")
    for command in ("serve", "demo", "check", "pull", "explain", "config", "version"):
        assert f" {command} " in out


@pytest.mark.parametrize("command", [["serve"], ["check"], ["explain"], ["config", "check"], ["config", "show"], []])
def test_help_of_each_command_with_a_configuration_names_its_flags(cli, command):
    code, out, _ = cli(*command, "--help")
    assert code == 0
    for flag in ("--config", "--set", *FLAGS.values()):
        assert f"{flag} " in out


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["demo"], ["--keep", "--port"]),
        (["check"], ["--json"]),
        (["explain"], ["FILE", "--json"]),
        (["pull"], ["MODEL", "--update"]),
        (["config", "show"], ["--effective"]),
        (["version"], ["--json"]),
    ],
)
def test_help_names_the_flags_of_one_command(cli, command, flags):
    _, out, _ = cli(*command, "--help")
    assert [flag for flag in flags if flag not in out] == []


def test_version_as_text_and_as_json(cli):
    code, out, _ = cli("version")
    assert (code, out.splitlines()[0]) == (0, f"needle-router {__version__}")
    code, out, _ = cli("version", "--json")
    found = json.loads(out)
    assert (code, found["needle-router"]) == (0, __version__)
    assert {"python", "platform", "uvicorn", "cactus-needle", "needle-rs"} <= set(found)
    assert cli("--version")[:2] == (0, f"{__version__}\n")


def test_the_installed_command_and_the_module_are_the_same():
    from needle_router import __main__, cli

    assert __main__.main is cli.main


# ------------------------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bogus"], "Unknown option"),
        (["srve"], "srve"),
        (["explain"], "requires an argument"),
        (["serve", "--set", "server.port"], "--set server.port: expected section.key=value"),
        (["explain", "absent.json", *TINY], "absent.json: cannot be read: No such file or directory"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_plain_line(cli, arguments, said):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert all(line.startswith("needle-router: ") for line in err.splitlines())


def test_a_bad_configuration_ends_with_2_and_names_every_problem(cli, tmp_path):
    (tmp_path / "needle-router.toml").write_text("[server]\nprot = 1\n[engine]\nworkers = 0\n")
    for command in (["serve"], ["config", "check"], ["config", "show"], ["check"], ["explain", "-"], []):
        code, out, err = cli(*command, "--mode", "onn", "--set", "upstream.base_url=ftp://x")
        assert (code, out) == (2, "")
        assert err.splitlines() == [
            "needle-router: the configuration has 4 problems:",
            "needle-router:   server.prot: unknown key, did you mean 'port'? (file needle-router.toml)".replace(
                "file ", f"file {tmp_path}/"
            ),
            "needle-router:   mode: expected one of off, shadow, on, got \"onn\", did you mean 'on'? (flag --mode)",
            "needle-router:   engine.workers: 0 must be at least 1",
            "needle-router:   upstream.base_url: must begin with http:// or https://",
        ]


# ----------------------------------------------------------------------------------------------------- configuration


def test_config_check_says_which_file_is_good(cli, tmp_path):
    code, out, _ = cli("config", "check")
    assert (code, out) == (0, "ok: no configuration file; environment, flags and defaults only\n")
    (tmp_path / "other.toml").write_text("[server]\nport = 1\n")
    code, out, _ = cli("config", "check", "--config", "other.toml")
    assert (code, out) == (0, "ok: other.toml\n")


def test_config_show_gives_origins_and_hides_keys(cli, tmp_path):
    (tmp_path / "needle-router.toml").write_text("[server]\napi_keys = ['canary-one']\n")
    code, out, _ = cli("config", "show", "--port", "9", NEEDLE_ROUTER_UPSTREAM_API_KEY="canary-two")
    assert code == 0
    assert "canary" not in out
    assert out.strip().splitlines() == [
        "[server]",
        "port = 9  # flag --port",
        f'api_keys = ["(set)"]  # file {tmp_path}/needle-router.toml, secret',
        "",
        "[upstream]",
        'api_key = "(set)"  # env NEEDLE_ROUTER_UPSTREAM_API_KEY, secret',
    ]
    _, out, _ = cli("config", "show", "--effective")
    assert 'mode = "on"  # default' in out


# ----------------------------------------------------------------------------------------------------------- explain


def test_explain_says_that_a_plain_wish_is_answered_here(cli, tmp_path):
    (tmp_path / "request.json").write_bytes(request("turn on the kitchen lights"))
    flags = ("--set", 'policy=[{"kind": "guards"}, {"kind": "threshold", "minimum": 0.5}]')
    code, out, err = cli("explain", "request.json", *TINY, *flags, "--upstream", "http://127.0.0.1:9/v1")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "route      local",
        "reason     confident: every check passed and the score reached the threshold",
    ]
    assert 'call       set_lights {"room": "kitchen", "on": true}' in out


def test_explain_says_why_not_as_json_from_standard_input(cli):
    code, out, _ = cli(
        "explain",
        "-",
        "--json",
        "--upstream",
        "http://127.0.0.1:9/v1",
        *TINY,
        stdin=request("don't turn on the office lights"),
    )
    shown = json.loads(out)
    assert (code, shown["route"], shown["reason"], shown["policy"]) == (0, "upstream", "negated", "guards")
    assert "negated" in shown["evidence"]["failures"]


def test_explain_of_a_body_that_cannot_be_read(cli):
    code, out, _ = cli("explain", "-", "--json", *TINY, stdin=b"{")
    assert (code, json.loads(out)["reason"]) == (0, "unparsed")


def test_explain_takes_the_headers_of_the_request(cli):
    wish, upstream = request("turn on the kitchen lights"), ("--upstream", "http://127.0.0.1:9/v1")
    code, out, _ = cli("explain", "-", "--json", *upstream, *TINY, "--header", "X-Needle-Mode: shadow", stdin=wish)
    assert (code, json.loads(out)["reason"]) == (0, "shadow")
    both = ("--header", "x-needle-never: set_lights", "--header", "x-needle-min-confidence: 0.1")
    code, out, _ = cli("explain", "-", "--json", *upstream, *TINY, *both, stdin=wish)
    assert (code, json.loads(out)["reason"], json.loads(out)["policy"]) == (0, "tool-never", "request")
    code, _, err = cli("explain", "-", *TINY, "--header", "shadow", stdin=wish)
    assert (code, err) == (2, "needle-router: --header shadow: expected name: value\n")


def test_explain_prints_what_a_certificate_would_be_bound_to(cli):
    fingerprints = set()
    for text in ("turn on the kitchen lights", "turn off the attic lights"):
        _, out, _ = cli("explain", "-", "--upstream", "http://127.0.0.1:9/v1", *TINY, stdin=request(text))
        (line,) = (line for line in out.splitlines() if line.startswith("bound to   "))
        fingerprints.add(line)
    assert len(fingerprints) == 1


def test_explain_never_asks_the_upstream(cli):
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.settimeout(0.2)
        url = f"http://127.0.0.1:{upstream.getsockname()[1]}/v1"
        code, out, _ = cli("explain", "-", "--json", "--upstream", url, *TINY, stdin=request("what is the time?"))
        assert (code, json.loads(out)["route"]) == (0, "upstream")
        with pytest.raises(TimeoutError):
            upstream.accept()


def test_explain_without_a_model_ends_with_4(cli):
    code, out, _ = cli(
        "explain", "-", "--json", "--upstream", "http://127.0.0.1:9/v1", stdin=request("turn on the kitchen lights")
    )
    assert (code, json.loads(out)["reason"]) == (4, "engine-off")
    code, out, _ = cli("explain", "-", "--json", stdin=request("turn on the kitchen lights"))
    assert (code, json.loads(out)["error"]["code"]) == (4, "engine_off")


# ------------------------------------------------------------------------------------------------------------- check


def found(out):
    return {row["name"]: row for row in json.loads(out)["checks"]}


def test_check_of_needle_alone_finds_everything_in_place(cli):
    code, out, _ = cli("check", "--json", "--port", "0", *TINY)
    rows = found(out)
    assert (code, json.loads(out)["ok"]) == (0, True)
    assert list(rows) == ["config", "versions", "upstream", "engine", "port", "ledger", "disk"]
    assert rows["engine"]["text"] == "tiny on rust: ready (demo model: not Needle's quality)"
    assert rows["upstream"]["text"] == "none: Needle alone"


def test_check_ends_with_4_when_the_engine_is_missing(cli):
    code, out, _ = cli("check", "--json", "--port", "0")
    assert (code, found(out)["engine"]["state"], json.loads(out)["ok"]) == (4, "failed", False)


def test_check_ends_with_1_when_upstream_port_or_ledger_fail(cli, tmp_path):
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.settimeout(5)
        port = str(taken.getsockname()[1])
        # Nothing is bound to port 1 of loopback, so it refuses at once.
        flags = ("--port", port, "--upstream", "http://127.0.0.1:1", "--ledger", str(tmp_path / "file" / "x.db"))
        code, out, _ = cli("check", "--json", "--mode", "off", *flags)
    rows = found(out)
    assert code == 1
    assert {name for name, row in rows.items() if row["state"] == "failed"} == {"upstream", "port", "ledger"}
    assert rows["upstream"]["text"].startswith("127.0.0.1:1 cannot be asked: ConnectError")


def test_check_as_text_has_one_line_a_probe(cli):
    code, out, _ = cli("check", "--mode", "off", "--port", "0", "--ledger", "off")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == [
        "config", "versions", "upstream", "engine", "port", "ledger", "disk",
    ]  # fmt: skip
