"""A report as JSON, as tables and as a page: complete, stable, and safe with any name."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.support import local, reported, shadow, upstream, when

from needle_router.report.document import document
from needle_router.report.model import DIMENSIONS
from needle_router.report.notes import AGREEMENT, money, notes, share, span
from needle_router.report.page import POLICY, STYLE, page, sheet
from needle_router.report.tables import tables

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\n\ud800"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "report.md"


def every(name="f"):
    """A report with something in each part."""
    return reported(
        local(tools_called=(name,), model=name),
        local(saved_usd=None, comparison="agree"),
        shadow(tools_called=(name,), policy=name),
        shadow("name-differs", confidence=0.7),
        shadow("local-missed", failures=("ungrounded",)),
        upstream(cost_usd=None),
        upstream(route="merged", reason="merged"),
        penalty_usd=0.5,
    )


class Reader(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.names, self.open, self.words = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def paths(value, prefix=""):
    """The key paths of a JSON document; names of tools and the like are left out."""
    for key, item in value.items() if isinstance(value, dict) else ():
        yield (path := f"{prefix}.{key}".lstrip("."))
        if path not in ("agreement.tools", "agreement.kinds", "agreement.audits", "latency", "engine.failures", "by"):
            yield from paths(item, path)


def test_the_document_is_json_with_its_documented_keys():
    found = document(every(), by=DIMENSIONS)
    assert json.loads(json.dumps(found)) == found
    documented = set(re.findall(r"`([a-z0-9_.]+)`", PAGE.read_text("utf-8")))
    assert {path for path in paths(found) if path not in documented} == set()
    row = set(found["by"]["tool"][0]) | set(found["risk_coverage"]["thresholds"][0]) | set(found["latency"]["engine"])
    assert row - {name.rpartition(".")[2] for name in documented} == set()


def test_an_empty_report_has_the_same_keys():
    assert set(document(reported(), by=DIMENSIONS)) == set(document(every(), by=DIMENSIONS))


def test_only_the_wanted_groups_are_in_the_document():
    assert list(document(every(), by=("tool",))["by"]) == ["tool"]


def test_shares_without_data_are_null_and_sums_are_rounded():
    found = document(reported(*[local(saved_usd=0.1)] * 3), by=())
    assert found["agreement"]["shadow"] == {"n": 0, "agreed": 0, "share": None, "low": 0.0, "high": 1.0}
    assert found["savings"]["avoided"] == {"usd": 0.3, "unknown": 0}
    assert found["savings"]["estimate_usd"] is None


def test_the_page_says_that_agreement_is_not_correctness():
    assert AGREEMENT in notes(every())
    assert "It does not bound error" in page(every(), when=when)


def test_a_page_needs_nothing_from_outside():
    text = page(every(), when=when)
    assert set(re.findall(r"https?://[^\"' <]+", text)) == {"http://www.w3.org/2000/svg"}
    read = Reader(text)
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(read.tags)
    assert not {"style", "href", "src", "onclick", "onload"} & read.names
    assert "@import" not in text
    assert "url(" not in text


def test_a_hostile_name_stays_text_wherever_it_stands():
    text = page(every(HOSTILE), when=when)
    read = Reader(text)
    assert read.open == []
    assert "script" not in read.tags
    assert "<script>alert(1)</script>" in "".join(read.words)
    assert not re.search(r"[\x1b\ud800]", text)
    text.encode()


def test_the_policy_allows_this_style_sheet_and_nothing_else():
    text = page(every(), when=when)
    assert f'content="{POLICY}"' in text
    assert text.count("<style>") == 1
    assert f"<style>{STYLE}</style>" in text
    assert POLICY.startswith("default-src 'none'; style-src 'sha256-")


def test_a_page_is_light_and_dark_and_fits_a_telephone():
    text = page(every(), when=when)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert text.count("prefers-color-scheme:dark") == 2


def test_every_table_of_a_page_is_named_and_its_cells_have_heads():
    read = Reader(page(every(), when=when))
    assert read.tags.count("table") == read.tags.count("caption") >= 8
    assert "scope" in read.names


def test_a_period_without_requests_is_a_page_that_says_so():
    text = page(reported(), when=when)
    assert "No request was recorded in this period." in text
    assert Reader(text).open == []


def test_a_sheet_has_its_title_a_line_and_what_it_is_given():
    text = sheet("a & b", "1 < 2", "<p>running</p>")
    assert text.index("<h1>a &amp; b</h1>") < text.index("<p>1 &lt; 2</p>") < text.index("<p>running</p>")
    assert "<title>a &amp; b</title>" in text


def test_the_tables_hold_the_balance_and_what_is_unknown():
    found = {table.title: {row[0]: row[1:] for row in table.rows} for table in tables(every(), ("tool",))}
    assert found["Savings"]["avoided upstream cost"] == ("$0.0100 + 1 unknown",)
    assert found["Savings"]["answers found wrong: 0, $0.5000 each"] == ("$0.0000",)
    assert found["Agreement with the upstream"]["audits: answered here"][0] == "1 of 1"
    assert found["Comparisons"]["local-missed"] == ("0", "1")
    assert found["By tool"]["none"][0] == "2"


def test_columns_that_say_nothing_are_left_out_of_tables_of_groups():
    def columns(*records):
        return tables(reported(*records), ("tool",))[-1].columns

    assert columns(local()) == ("tool", "requests", "here", "upstream", "avoided", "upstream cost", "agreed")
    assert "merged" in columns(local(), upstream(route="merged"))
    assert "failed" in columns(local(), upstream(status=500, cost_usd=None))


def test_tables_without_a_row_are_left_out():
    assert [table.title for table in tables(reported(upstream()), ())] == ["Savings", "Requests", "Times"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "$0.0000"),
        (1234.5, "$1,234.50"),
        (-0.02, "-$0.0200"),
        (0.000012, "$0.000012"),
        (-0.00000001, "$0.000000"),
    ],
)
def test_money_has_the_digits_it_needs(value, text):
    assert money(value) == text


def test_shares_and_times_are_short():
    assert (share(0.0534), span(0.00042), span(0.15), span(2.346)) == ("5.3 %", "0.42 ms", "150 ms", "2.35 s")
