"""Nothing that a user can meet is undocumented, and nothing documented is missing."""

import ast
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from docs import generate

from needle_policies import REASONS
from needle_policies.registry import BUILT_IN, INTERNAL
from needle_router.admin import ENDPOINTS
from needle_router.cli.commands import app
from needle_router.cli.exits import Exit
from needle_router.config.keys import KEYS
from needle_router.config.load import load_config
from needle_router.errors import ConfigError, RouterError

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "training").rglob("*.md"))
)
TEXT = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in PAGES}
README, CHANGELOG = TEXT["README.md"], TEXT["CHANGELOG.md"]
CONFIGURATION, HTTP = TEXT["docs/configuration.md"], TEXT["docs/http.md"]
OPERATIONS, POLICIES = TEXT["docs/operations.md"], TEXT["docs/policies.md"]
PAGE_IDS = list(TEXT)
HEADERS = [
    "x-needle-route",
    "x-needle-reason",
    "x-needle-policy",
    "x-needle-confidence",
    "x-needle-overhead-ms",
    "x-request-id",
]
METRICS = """requests_total request_duration_seconds overhead_seconds engine_duration_seconds engine_queue_depth
engine_restarts_total engine_reinits_total upstream_errors_total breaker_state tokens_saved_total cost_saved_usd_total
races_total cost_wasted_usd_total audits_total cost_audits_usd_total cost_unknown_total ledger_dropped_total
build_info comparisons_total canary_promotions_total canary_alarms""".split()


def blocks(kind):
    """(page, text) of every fenced block of a kind."""
    return [(page, text) for page, body in TEXT.items() for text in re.findall(rf"```{kind}\n(.*?)```", body, re.S)]


def test_what_the_code_knows_is_written_as_the_code_knows_it():
    assert generate.stale() == []


def test_a_part_without_its_markers_is_an_error():
    with pytest.raises(ValueError, match="the markers of reasons are missing"):
        generate.generated("no markers", {"reasons": generate.reason_table})


@pytest.mark.parametrize("slug", REASONS)
def test_the_reason_is_in_the_readme(slug):
    assert f"| `{slug}` | {REASONS[slug]} |" in README


def test_the_readme_has_no_reason_that_does_not_exist():
    table = README.partition("<!-- begin: reasons -->")[2].partition("<!-- end: reasons -->")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.M)) == set(REASONS)


@pytest.mark.parametrize("path", KEYS)
def test_the_configuration_key_is_documented(path):
    assert f"| `{path}` |" in CONFIGURATION
    section, _, name = path.rpartition(".")
    example = CONFIGURATION.partition("<!-- begin: example -->")[2]
    heading = f"[{section}]" if section else ""
    assert heading in example
    assert re.search(rf"^(# )?({re.escape(name)} = |\[+{re.escape(name)}\b)", example, re.M)


@pytest.mark.parametrize("kind", BUILT_IN)
def test_the_policy_and_its_options_are_documented(kind):
    row = next(line for line in POLICIES.splitlines() if line.startswith(f"| `{kind}` |"))
    options = {field.name for field in fields(BUILT_IN[kind])} - INTERNAL
    assert all(f"`{option}`" in row for option in options)
    assert f'kind = "{kind}"' in (ROOT / "config.example.toml").read_text("utf-8")


@pytest.mark.parametrize("name", METRICS)
def test_the_metric_is_documented(name):
    assert f"| `needle_router_{name}` |" in OPERATIONS


def test_no_metric_is_undocumented():
    documented = set(re.findall(r"^\| `needle_router_(\w+)` \|", OPERATIONS, re.M))
    assert documented == set(METRICS)


@pytest.mark.parametrize("path", [*ENDPOINTS, "/v1/models"])
def test_the_endpoint_is_documented(path):
    assert f"| `{path}` |" in HTTP


@pytest.mark.parametrize("path", ENDPOINTS)
def test_the_readme_names_the_endpoint(path):
    assert f"`{path}`" in README


@pytest.mark.parametrize("error", [kind for kind in generate.every_error(RouterError) if kind is not ConfigError])
def test_the_error_is_documented(error):
    assert f"| {error.status} | `{error.code}` | `{error.type}` |" in HTTP


def test_error_codes_of_single_places_are_documented():
    sources = "".join(file.read_text("utf-8") for file in (ROOT / "router").rglob("*.py"))
    codes = set(re.findall(r'\bcode="(\w+)"', sources))
    assert codes
    assert {code for code in codes if f"`{code}`" not in HTTP} == set()


@pytest.mark.parametrize("code", Exit)
def test_the_exit_code_is_documented(code):
    assert re.search(rf"^\| {int(code)} \| \w", OPERATIONS, re.M)


@pytest.mark.parametrize("header", HEADERS)
def test_the_header_is_documented(header):
    assert f"`{header}`" in README
    assert f"`{header}`" in HTTP


def test_the_changelog_says_what_is_unreleased():
    unreleased = CHANGELOG.partition("## [Unreleased]")[2].partition("\n## [")[0]
    assert re.search(r"^### (Added|Changed|Fixed|Removed|Deprecated|Security)$", unreleased, re.M)
    assert len(re.findall(r"^- ", unreleased, re.M)) >= 1


def test_the_two_commands_stand_at_the_top_of_the_readme():
    first = re.search(r"```sh\n(.*?)```", README, re.S)[1]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    assert README.index(first) < 1500


def test_make_commands_in_the_pages_are_targets():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    named = {word for text in TEXT.values() for word in re.findall(r"^make ([a-z]+)|`make ([a-z]+)`", text, re.M)}
    assert {one or other for one, other in named} - targets == set()


def test_commands_in_the_pages_exist():
    known = {name for name in app if not name.startswith("-")}
    lines = [line for _, text in blocks("sh") for line in text.splitlines()]
    lines += [text for page in TEXT.values() for text in re.findall(r"`(needle-router [^`]+)`", page)]
    named = {match[1] for line in lines if (match := re.match(r"\s*needle-router (\w[\w-]*)", line))}
    assert {"serve", "check", "explain", "config"} <= named
    assert named - known == set()


@pytest.mark.parametrize("page", PAGE_IDS)
def test_the_links_of_the_page_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)#\s]+)", TEXT[page].replace("\n", "")):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_python_in_the_pages_is_python():
    found = blocks("python")
    assert found
    for _, text in found:
        ast.parse(text)


def test_toml_in_the_pages_is_toml():
    found = blocks("toml")
    assert found
    for _, text in found:
        tomllib.loads(text)


def test_the_policy_example_of_the_pages_loads(tmp_path):
    (text,) = (text for page, text in blocks("toml") if page == "docs/policies.md" and "delete_file" in text)
    file = tmp_path / "needle-router.toml"
    file.write_text(text)
    config = load_config(file, environ={}, flags={"ledger.path": "off"})
    assert config.policy[1]["tools"] == {"delete_file": "never", "send_money": 0.98}


@pytest.mark.parametrize("page", [page for page in PAGE_IDS if page.startswith("docs/adr/0")])
def test_a_decision_has_context_decision_and_consequences(page):
    parts = re.findall(r"^\*\*(\w+)\.\*\*", TEXT[page], re.M)
    assert parts == ["Context", "Decision", "Consequences"]
    assert f"]({Path(page).name})" in TEXT["docs/adr/README.md"]


def test_every_test_and_benchmark_that_a_page_names_is_there():
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)", sources))
    named = {name for text in TEXT.values() for name in re.findall(r"`(test_\w+)`", text)}
    assert len(named) > 50
    assert named - defined == set()
    scripts = {name for text in TEXT.values() for name in re.findall(r"`((?:benchmarks|training)/\w+\.py)`", text)}
    assert {name for name in scripts if not (ROOT / name).is_file()} == set()
