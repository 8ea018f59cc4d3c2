"""config.example.toml documents every key and says the truth; what is shown holds no secret and loads again."""

import re
import tomllib
from pathlib import Path

import pytest

from needle_policies.registry import BUILT_IN, INTERNAL, problems
from needle_router.config import Config, load, redacted
from needle_router.config.keys import KEYS
from needle_router.config.load import assemble
from needle_router.config.schema import Price
from needle_router.config.show import bare_url, toml_lines

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"
KEY_LINE = re.compile(r"^(?:# )?([a-z_]+) = ")


def documented_keys():
    """Key path -> whether a comment line stands right above it, for every key of the example, left out or not."""
    found, section, above = {}, "", ""
    for line in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if header := re.match(r"^(?:# )?\[\[?([a-z_.]+)", line):
            section = header[1]
        elif key := KEY_LINE.match(line):
            found[f"{section}.{key[1]}" if section else key[1]] = above.startswith("#")
        above = line
    return found


def test_the_example_loads_and_states_the_defaults(tmp_path):
    loaded = load(EXAMPLE, environ={"HOME": str(tmp_path)})
    default = Config()
    for name in ("mode", "server", "upstream", "engine", "extract", "merge", "ledger", "report", "prices"):
        assert getattr(loaded.config, name) == getattr(default, name)
    built = [BUILT_IN[t["kind"]](**{k: v for k, v in t.items() if k != "kind"}) for t in loaded.config.policy]
    by_default = [BUILT_IN[t["kind"]](**{k: v for k, v in t.items() if k != "kind"}) for t in default.policy]
    assert built == by_default


@pytest.mark.parametrize("path", [path for path in KEYS if path not in ("policy", "prices")])
def test_every_key_stands_in_the_example_below_a_comment(path):
    assert documented_keys().get(path), f"{path} has no commented line in config.example.toml"


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_every_policy_kind_has_a_block_with_each_of_its_options(kind):
    text = EXAMPLE.read_text(encoding="utf-8")
    block = text.split(f'kind = "{kind}"')[1].split("[[policy]]")[0]
    for name in BUILT_IN[kind].__dataclass_fields__.keys() - INTERNAL:
        assert f"{name} = " in block or f"[policy.{name}]" in block


def test_the_commented_lines_of_the_example_are_valid_too(tmp_path):
    text = EXAMPLE.read_text(encoding="utf-8")
    whole = tomllib.loads(re.sub(r"^# (?=\[+p.*\]$|[a-z_]+ = )", "", text, flags=re.M))
    assert problems(whole["policy"]) == []
    assert {table["kind"] for table in whole["policy"]} == set(BUILT_IN)
    assert whole["prices"]["gpt-x"] == {"input": 2.5, "cached_input": 0.25, "output": 10.0}


SECRETS = assemble(
    {
        "server.api_keys": ("canary-router-one", "canary-router-two"),
        "upstream.api_key": "canary-upstream",
        "upstream.base_url": "https://user:canary@example.org/v1?key=canary",
        "prices": {"gpt-4.1": Price(input=2, output=8)},
        "policy": ({"kind": "threshold", "minimum": 0.7, "tools": {"send money": 0.98, "x": "never"}},),
    }
)


def test_redaction_hides_every_key_and_says_that_it_is_set():
    shown = redacted(SECRETS)
    assert "canary" not in repr(shown)
    assert shown["server"]["api_keys"] == ["(set)", "(set)"]
    assert shown["upstream"] | {"api_key": "(set)", "base_url": "https://example.org/v1"} == shown["upstream"]
    assert redacted(Config())["upstream"]["api_key"] == ""


def test_what_is_shown_is_toml_that_says_the_same():
    text = "\n".join(toml_lines(SECRETS, {"server.port": "flag --port"}))
    assert "canary" not in text
    document = tomllib.loads(text)
    assert document["policy"] == [{"kind": "threshold", "minimum": 0.7, "tools": {"send money": 0.98, "x": "never"}}]
    assert document["prices"] == {"gpt-4.1": {"input": 2, "output": 8}}
    assert document["server"]["port"] == 8088
    assert "port = 8088  # flag --port" in text
    assert set(document) == {
        "mode",
        "server",
        "upstream",
        "engine",
        "extract",
        "merge",
        "ledger",
        "report",
        "policy",
        "prices",
    }


def test_only_what_was_set_can_be_shown_alone():
    lines = list(toml_lines(SECRETS, {"server.port": "flag --port"}, all_keys=False))
    assert lines == ["\n[server]", "port = 8088  # flag --port"]


@pytest.mark.parametrize(
    ("url", "bare"),
    [("https://u:p@h:1/v1?q#f", "https://h:1/v1"), ("http://[::1]:9/v1", "http://[::1]:9/v1"), ("http://[", "")],
)
def test_a_url_is_shown_without_what_may_be_secret(url, bare):
    assert bare_url(url) == bare
