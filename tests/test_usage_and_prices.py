"""Token counts seen in passing, and what they cost."""

import gzip
import json
import tracemalloc
import zlib

import brotli
import pytest
from backports import zstd

from needle_router.config.schema import Price
from needle_router.decoding import decoder_for
from needle_router.prices import Prices
from needle_router.records import AUDITS, DecisionRecord
from needle_router.tokens import EstimateCounter, counter_for
from needle_router.totals import Totals
from needle_router.turn import Usage
from needle_router.usage import MAX_BODY_BYTES, UsageReader, usage_of

BODY = {
    "choices": [],
    "usage": {
        "prompt_tokens": 2000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 1500},
        "completion_tokens_details": {"reasoning_tokens": 64},
    },
}
EXPECTED = Usage(2000, 100, cached_tokens=1500, reasoning_tokens=64)


def read(kind, *chunks, encoding=""):
    reader = UsageReader(kind, encoding)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()


def bare_deflate(data):
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def wide_window(data):
    """zstd with a window of 2**27 bytes, which HTTP does not allow."""
    return zstd.compress(data, options={zstd.CompressionParameter.window_log: 27})


def sse(*bodies):
    return b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies)


PROVISIONAL = {"choices": [], "usage": {"prompt_tokens": 2000, "completion_tokens": 1}}


@pytest.mark.parametrize(
    ("kind", "data", "encoding"),
    [
        pytest.param("application/json", json.dumps(BODY).encode(), "", id="JSON"),
        pytest.param("application/json; charset=utf-8", gzip.compress(json.dumps(BODY).encode()), "gzip", id="gzip"),
        pytest.param("application/json", zlib.compress(json.dumps(BODY).encode()), "deflate", id="deflate"),
        pytest.param("application/json", bare_deflate(json.dumps(BODY).encode()), "deflate", id="deflate without head"),
        pytest.param("application/json", brotli.compress(json.dumps(BODY).encode()), "BR", id="br"),
        pytest.param("application/json", zstd.compress(json.dumps(BODY).encode()), "zstd", id="zstd"),
        pytest.param("text/event-stream", brotli.compress(sse(PROVISIONAL, BODY)), "br", id="br, a stream"),
        pytest.param("text/event-stream", zstd.compress(sse(PROVISIONAL, BODY)), "zstd", id="zstd, a stream"),
        pytest.param(
            "text/event-stream", sse(PROVISIONAL, BODY) + b"data: [DONE]\n\n", "", id="stream, the last one wins"
        ),
        pytest.param("text/event-stream", sse(BODY, {"usage": None, "choices": []}), "", id="null afterwards"),
        pytest.param("text/event-stream", sse(BODY).replace(b"\n", b"\r\n"), "", id="CRLF"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_usage_is_read_however_the_body_was_cut(kind, data, encoding, size):
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert read(kind, *pieces, encoding=encoding) == EXPECTED


@pytest.mark.parametrize(
    ("kind", "data", "encoding"),
    [
        pytest.param("application/json", b"{", "", id="cut"),
        pytest.param("application/json", b'{"usage": null}', "", id="null"),
        pytest.param("application/json", b'{"usage": {"prompt_tokens": -1}}', "", id="negative"),
        pytest.param("application/json", b'{"usage": {"prompt_tokens": "9"}}', "", id="text"),
        pytest.param("application/json", b"x" * (MAX_BODY_BYTES + 1), "", id="over the cap"),
        pytest.param("text/html", json.dumps(BODY).encode(), "", id="another kind"),
        pytest.param("application/json", json.dumps(BODY).encode(), "compress", id="an encoding that is not read"),
        pytest.param("application/json", gzip.compress(brotli.compress(b"{}")), "br, gzip", id="two encodings"),
        pytest.param("application/json", json.dumps(BODY).encode(), "br", id="a lie about br"),
        pytest.param("application/json", json.dumps(BODY).encode(), "zstd", id="a lie about zstd"),
        pytest.param("application/json", b"not gzip", "gzip", id="a lie about the encoding"),
        pytest.param("text/event-stream", b"data: " + b"x" * 9_000_000, "", id="an endless event"),
    ],
)
def test_what_cannot_be_read_is_unknown(kind, data, encoding):
    assert read(kind, data, encoding=encoding) is None


BOMB = b" " * 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        pytest.param("gzip", gzip.compress(BOMB), id="gzip"),
        pytest.param("deflate", zlib.compress(BOMB), id="deflate"),
        pytest.param("br", brotli.compress(BOMB, quality=5), id="br"),
        pytest.param("zstd", zstd.compress(BOMB), id="zstd"),
        pytest.param("zstd", wide_window(BOMB), id="zstd with a window beyond the limit"),
    ],
)
def test_a_bomb_costs_a_little_more_than_the_cap_and_is_unknown(encoding, data):
    tracemalloc.start()
    try:
        assert read("application/json", data, encoding=encoding) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * MAX_BODY_BYTES


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_every_coding_of_the_table_is_at_hand_here(encoding):
    assert decoder_for(encoding) is not None


def test_the_responses_api_names_are_understood():
    body = {
        "response": {"usage": {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 2}}}
    }
    assert usage_of(body) == Usage(7, 3, cached_tokens=2)


def test_cached_tokens_are_part_of_the_prompt_and_never_more():
    figures = {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}
    assert usage_of({"usage": figures}).cached_tokens == 5


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        pytest.param({"prompt_tokens": 5, "total_tokens": 5}, Usage(5, 0), id="embeddings write nothing"),
        pytest.param({"completion_tokens": 5, "total_tokens": 7}, Usage(2, 5), id="what was read is the rest"),
        pytest.param({"prompt_tokens": 5}, None, id="what was written is unknown, not nothing"),
        pytest.param({"completion_tokens": 5}, None, id="what was read is unknown, not nothing"),
        pytest.param({"total_tokens": 5}, None, id="a total alone"),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 5}, Usage(9, 3), id="too small a total"
        ),
        pytest.param(
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(32, 103, reasoning_tokens=94),
            id="reasoning beside the completion, as xAI counts",
        ),
        pytest.param(
            {"prompt_tokens": 20, "completion_tokens": 424, "total_tokens": 1016},
            Usage(20, 996),
            id="reasoning in the total alone, as Gemini counts",
        ),
        pytest.param(
            {
                "prompt_tokens": 10,
                "completion_tokens": 100,
                "total_tokens": 110,
                "completion_tokens_details": {"reasoning_tokens": 64},
            },
            Usage(10, 100, reasoning_tokens=64),
            id="reasoning inside the completion, as OpenAI counts",
        ),
    ],
)
def test_all_that_was_written_counts_wherever_it_is_said(figures, expected):
    assert usage_of({"usage": figures}) == expected


PRICES = Prices(
    {
        "big": Price(input=2.0, cached_input=0.5, output=8.0),
        "plain": Price(input=1.0, output=2.0),
        "vendor/plain": Price(input=3.0, output=3.0),
        "free": Price(input=0.0, output=0.0),
    }
)


@pytest.mark.parametrize(
    ("model", "usage", "cost"),
    [
        pytest.param("big", EXPECTED, 0.00255, id="cached once"),
        pytest.param("vendor/big", EXPECTED, 0.00255, id="with a provider prefix"),
        pytest.param("gateway/vendor/big", EXPECTED, 0.00255, id="with two prefixes"),
        pytest.param("gateway/vendor/plain", Usage(1, 1), 6e-6, id="the longest name that has a price"),
        pytest.param("other/plain", Usage(1, 1), 3e-6, id="another prefix"),
        pytest.param("free", EXPECTED, 0.0, id="free, which is known"),
        pytest.param("a/", EXPECTED, None, id="a prefix alone"),
        pytest.param("big", Usage(0, 100, reasoning_tokens=64), 0.0008, id="reasoning is part of the completion"),
        pytest.param("plain", Usage(10, 5, cached_tokens=10), 20e-6, id="no price for cached"),
        pytest.param("nobody-knows-this", EXPECTED, None, id="unknown model"),
        pytest.param("", EXPECTED, None, id="no model"),
    ],
)
def test_costs(model, usage, cost):
    assert PRICES.cost_usd(model, usage) == (None if cost is None else pytest.approx(cost))


def test_listed_prices_work_offline_for_a_well_known_model():
    cost = Prices({}).cost_usd("gpt-4o", Usage(1_000_000, 0))
    assert cost is not None
    assert 0.5 < cost < 50
    assert Prices({}).cost_usd("openai/gpt-4o", Usage(1_000_000, 0)) == cost


def record(route, **changes):
    return DecisionRecord(**{"time_s": 1.0, "route": route, "reason": "confident", "status": 200, **changes})


def test_totals_keep_local_upstream_and_saved_apart():
    totals = Totals()
    totals.add(record("local", saved=Usage(100, 10), saved_usd=0.1))
    totals.add(record("upstream", reason="no-call", usage=EXPECTED, cost_usd=0.00255))
    totals.add(record("upstream", reason="no-call", usage=EXPECTED, cost_usd=None))
    totals.add(record("upstream", reason="no-call"))
    totals.add(record("upstream", reason="not-chat", chat=False))
    totals.add(record("upstream", reason="no-call", status=502))
    totals.add(record("local", reason="budget-exceeded", status=429, error="budget_exceeded"))
    totals.add(record("merged", reason="merged", usage=Usage(1, 1), cost_usd=0.2, saved=Usage(5, 5), saved_usd=0.2))
    assert totals.as_dict() == {
        "local": {"requests": 1, "cost_usd": 0},
        "upstream": {
            "requests": 5,
            "errors": 1,
            "prompt_tokens": 4001,
            "completion_tokens": 201,
            "cached_tokens": 3000,
            "cost_usd": 0.20255,
            "cost_unknown": 1,
            "usage_unknown": 1,
        },
        "merged": {"requests": 1},
        "refused": {"requests": 1},
        "saved": {"prompt_tokens": 105, "completion_tokens": 15, "cost_usd": 0.3, "cost_unknown": 0},
        "races": {"local": 0, "upstream": 0, "merged": 0},
        "audits": dict.fromkeys(
            (*AUDITS, "agree", "prompt_tokens", "completion_tokens", "cost_usd", "cost_unknown"), 0
        ),
        "wasted": {"requests": 0, "prompt_tokens": 0, "cost_usd": 0.0, "cost_unknown": 0},
    }
    assert totals.reasons() == {
        "no-call": 4,
        "confident": 1,
        "not-chat": 1,
        "budget-exceeded": 1,
        "merged": 1,
    }


def test_totals_count_races_by_who_answered_and_what_they_wasted():
    totals = Totals()
    totals.add(record("local", raced=True, wasted=Usage(50, 0), wasted_usd=0.5))
    totals.add(record("local", raced=True, wasted=Usage(7, 0)))
    totals.add(record("local", raced=True))
    totals.add(record("upstream", reason="race-lost", raced=True, usage=Usage(1, 1), cost_usd=0.1))
    found = totals.as_dict()
    assert found["races"] == {"local": 3, "upstream": 1, "merged": 0}
    assert found["wasted"] == {"requests": 2, "prompt_tokens": 57, "cost_usd": 0.5, "cost_unknown": 1}
    assert found["upstream"]["cost_usd"] == 0.1


def test_totals_count_audits_by_what_came_of_them():
    totals = Totals()
    totals.add(record("local", audit="compared", comparison="agree", audit_usage=EXPECTED, audit_usd=0.5))
    totals.add(record("local", audit="compared", comparison="name-differs", audit_usage=Usage(7, 1)))
    totals.add(record("local", audit="timeout"))
    totals.add(record("local", audit="failed"))
    totals.add(record("local", audit="dropped"))
    totals.add(record("local"))
    assert totals.as_dict()["audits"] == {
        "compared": 2,
        "unread": 0,
        "failed": 1,
        "timeout": 1,
        "dropped": 1,
        "agree": 1,
        "prompt_tokens": EXPECTED.prompt_tokens + 7,
        "completion_tokens": EXPECTED.completion_tokens + 1,
        "cost_usd": 0.5,
        "cost_unknown": 2,
    }
    assert totals.as_dict()["upstream"]["cost_usd"] == 0


def test_sums_of_money_do_not_drift():
    totals = Totals()
    for _ in range(1000):
        totals.add(record("upstream", usage=Usage(1, 1), cost_usd=0.1))
    assert totals.as_dict()["upstream"]["cost_usd"] == 100.0


def test_the_estimate_errs_towards_longer():
    counter = EstimateCounter()
    assert (counter.count(""), counter.count("a"), counter.count("abcd"), counter.exact) == (0, 1, 2, False)


def test_a_tokenizer_beside_the_model_is_used(tmp_path):
    import sentencepiece

    corpus = ["turn on the kitchen lights", "set a timer for five minutes", "what is the weather in oslo"] * 20
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(corpus),
        model_prefix=str(tmp_path / "own"),
        vocab_size=60,
        model_type="bpe",
        minloglevel=2,
    )
    model = tmp_path / "own.cact"
    model.write_bytes(b"")
    counter = counter_for(model)
    expected = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "own.model"))
    assert counter.exact
    assert counter.count("set a timer") == len(expected.encode("set a timer"))
    assert not counter_for(tmp_path / "elsewhere" / "x.cact").exact
    assert not counter_for(None).exact
