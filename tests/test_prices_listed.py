"""The price list that is shipped: what it says per prompt length, and that it may fail without harm."""

import genai_prices
import pytest

from needle_router.config.schema import Price
from needle_router.metrics import Metrics
from needle_router.prices import Prices
from needle_router.records import DecisionRecord, Totals
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
