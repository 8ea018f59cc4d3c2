"""The price list that is shipped: what it says per prompt length, and that it may fail without harm."""

import datetime
import subprocess
import sys

import genai_prices
import pytest
from genai_prices.data import providers

from needle_router.config.schema import Price
from needle_router.metrics import Metrics
from needle_router.price_list import active, listed, matches, rates_at
from needle_router.prices import Prices
from needle_router.records import DecisionRecord
from needle_router.totals import Totals
from needle_router.turn import Usage
from needle_router.usage import UsageReader


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param(Usage(1_000, 100), id="short"),
        pytest.param(Usage(200_000, 100), id="exactly at the step"),
        pytest.param(Usage(200_001, 100), id="just past the step"),
        pytest.param(Usage(300_000, 100, cached_tokens=250_000), id="long and cached"),
    ],
)
@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gpt-4o", "claude-sonnet-4-5"])
def test_a_listed_cost_is_what_the_list_itself_computes(model, usage):
    asked = genai_prices.Usage(
        input_tokens=usage.prompt_tokens, cache_read_tokens=usage.cached_tokens, output_tokens=usage.completion_tokens
    )
    expected = float(genai_prices.calc_price(asked, model_ref=model).total_price)
    assert Prices({}).cost_usd(model, usage) == pytest.approx(expected)


def names_to_ask():
    """Every model's id of every provider, also with the provider before it and with a date behind it."""
    ids = [model.id for provider in providers for model in provider.models]
    return [*ids, *(f"openai/{name}" for name in ids), *(f"{name}-20260102" for name in ids), "", "no-such-model"]


def cost_by_the_package(name, moment):
    try:
        asked = genai_prices.Usage(input_tokens=300_000, cache_read_tokens=1000, output_tokens=100)
        found = genai_prices.calc_price(asked, model_ref=name, genai_request_timestamp=moment)
    except (LookupError, ValueError):
        return None
    known = found.model_price.input_mtok is not None and found.model_price.output_mtok is not None
    return float(found.total_price) if known else None


@pytest.mark.parametrize(
    "moment", ["2025-03-01T12:00:00+00:00", "2026-11-30T02:00:00+00:00", "2027-02-01T23:30:00+05:00"]
)
def test_every_listed_model_costs_what_the_package_computes_at_that_time(moment):
    moment = datetime.datetime.fromisoformat(moment)
    for name in names_to_ask():
        expected = cost_by_the_package(name, moment)
        periods = listed(name)
        if expected is None:
            assert (
                not periods or rates_at(periods, moment)[0].base is None or rates_at(periods, moment)[2].base is None
            ), name
            continue
        cost = Prices({}, now=lambda: moment).cost_usd(name, Usage(300_000, 100, cached_tokens=1000))
        assert cost == pytest.approx(expected), name


def test_the_list_that_ships_is_what_the_package_says():
    check = [sys.executable, "-m", "docs.prices", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("when", "moment", "holds"),
    [
        pytest.param(None, "2026-01-01T00:00:00+00:00", True, id="always"),
        pytest.param(["2026-01-02"], "2026-01-01T23:59:59+00:00", False, id="the second before its day"),
        pytest.param(["2026-01-02"], "2026-01-02T00:00:00+00:00", True, id="from the first second of its day"),
        pytest.param(["2026-01-02"], "2026-01-02T00:30:00+01:00", False, id="the day is that of UTC"),
        pytest.param(["16:30:00", "00:30:00"], "2026-01-02T00:29:59+00:00", True, id="over midnight"),
        pytest.param(["16:30:00", "00:30:00"], "2026-01-02T00:30:00+00:00", False, id="its end is outside"),
        pytest.param(["16:30:00", "00:30:00"], "2026-01-02T16:30:00+00:00", True, id="its start is inside"),
        pytest.param(["01:00:00", "04:00:00"], "2026-01-02T04:00:00+00:00", False, id="the end within a day"),
    ],
)
def test_a_period_holds_at_its_exact_limits(when, moment, holds):
    assert active(when, datetime.datetime.fromisoformat(moment)) is holds


def test_all_of_a_clauses_parts_must_match_where_it_says_all():
    clause = ["all", [["starts", "gpt"], ["ends", "mini"]]]
    assert (matches(clause, "gpt-mini"), matches(clause, "gpt-maxi")) == (True, False)


def test_prices_need_no_other_package():
    code = "import sys, needle_router.prices as p; p.Prices({}).cost_usd('gpt-4o', p.Usage(1, 1)); "
    code += "print(sorted({'genai_prices', 'pydantic', 'httpx2'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30).stdout == "[]\n"


def test_a_long_prompt_of_one_request_does_not_change_the_price_of_the_next():
    prices = Prices({})
    long, short = prices.cost_usd("gemini-2.5-pro", Usage(1_000_000, 0)), prices.cost_usd("gemini-2.5-pro", Usage(1, 0))
    assert long == pytest.approx(2.5)
    assert short == pytest.approx(1.25e-6)


def test_the_configured_price_comes_before_the_listed_one():
    prices = Prices({"gpt-4o": Price(input=1.0, output=0.0)})
    assert prices.cost_usd("gpt-4o", Usage(1_000_000, 5)) == 1.0
    assert prices.cost_usd("openai/gpt-4o", Usage(1_000_000, 5)) == 1.0


def test_a_free_model_costs_zero_and_that_is_known():
    assert Prices({"free": Price(input=0.0, output=0.0)}).cost_usd("free", Usage(10, 10)) == 0.0


def test_what_was_saved_at_an_unknown_price_is_counted_as_unknown():
    totals = Totals()
    totals.add(DecisionRecord(1.0, "local", "confident", status=200, saved=Usage(100, 10)))
    totals.add(DecisionRecord(1.0, "local", "confident", status=200, saved=Usage(1, 1), saved_usd=0.5))
    assert totals.as_dict()["saved"] == {
        "prompt_tokens": 101,
        "completion_tokens": 11,
        "cost_usd": 0.5,
        "cost_unknown": 1,
    }


def test_figures_before_a_part_that_cannot_be_read_are_not_the_last_word():
    reader = UsageReader("text/event-stream")
    reader.feed(b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}\n\n')
    reader.feed(b"data: " + b"x" * 9_000_000)
    reader.feed(b'\n\ndata: {"usage": {"prompt_tokens": 5, "completion_tokens": 9}}\n\n')
    assert reader.finish() is None


def test_a_stream_that_was_cut_keeps_its_last_figures():
    reader = UsageReader("text/event-stream")
    reader.feed(b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}\n\ndata: {"cho')
    assert reader.finish() == Usage(5, 1)


def test_status_codes_that_no_standard_knows_share_one_series():
    metrics = Metrics(version="1", backend="rust")
    for status in (0, 200, 429, *range(600, 999)):
        metrics.observe(DecisionRecord(1.0, "upstream", "no-call", status=status))
    text = metrics.render()[0].decode()
    codes = {line.split('code="')[1].split('"')[0] for line in text.splitlines() if "requests_total{" in line}
    assert codes == {"0", "200", "429", "other"}
