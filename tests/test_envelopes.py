"""How the engine's JSON is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needle_router.envelopes import read_envelope, written
from needle_router.task import EngineFailure, Envelope, RawCall

ENVELOPE = {
    "type": "call",
    "success": True,
    "function_calls": [{"name": "f", "arguments": {"a": 1}}],
    "reasoning": "r",
    "confidence": 0.9,
    "prefill_tps": 10.0,
    "validation": {"ungrounded": [], "negation": False},
}


def test_an_envelope_is_read():
    assert read_envelope(ENVELOPE) == Envelope(
        kind="call", calls=(RawCall("f", {"a": 1}),), reasoning="r", confidence=0.9, ungrounded=(), prefill_tps=10.0
    )


@pytest.mark.parametrize("confidence", [None, "0.9", True, float("nan"), float("inf"), 2.0, -1, [], {}])
def test_a_score_that_is_none_is_unknown(confidence):
    assert read_envelope({**ENVELOPE, "confidence": confidence}).confidence is None


@pytest.mark.parametrize(("confidence", "read"), [(0, 0.0), (1, 1.0), (0.5, 0.5)])
def test_scores_at_the_edges_are_scores(confidence, read):
    assert read_envelope({**ENVELOPE, "confidence": confidence}).confidence == read


@pytest.mark.parametrize(
    ("changes", "calls"),
    [
        pytest.param({"function_calls": None}, (), id="no list"),
        pytest.param({"function_calls": [{"name": "f", "arguments": None}]}, (RawCall("f", {}),), id="null arguments"),
        pytest.param({"function_calls": [{"name": "f"}]}, (RawCall("f", {}),), id="no arguments"),
        pytest.param(
            {"function_calls": [{"name": "f", "arguments": '{"a":1}'}]}, (RawCall("f", {"a": 1}),), id="as text"
        ),
        pytest.param({"type": "refuse", "function_calls": [], "suppressed_calls": [{"name": "f"}]}, (), id="withheld"),
    ],
)
def test_calls_are_read_tolerantly(changes, calls):
    assert read_envelope({**ENVELOPE, **changes}).calls == calls


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"success": False, "error_code": "truncated"}, "truncated", id="truncated"),
        pytest.param({"success": False, "error_code": "context_overflow"}, "prompt-too-long", id="overflow"),
        pytest.param({"success": False, "error_code": 7, "error": "boom"}, "engine-error", id="numeric code"),
        pytest.param({"type": "error", "error": "needle_init not called"}, "engine-error", id="error type"),
        pytest.param({"function_calls": "f()"}, "engine-garbage", id="calls as text"),
        pytest.param({"function_calls": [1]}, "engine-garbage", id="a number as call"),
        pytest.param({"function_calls": [{"arguments": {}}]}, "engine-garbage", id="a nameless call"),
        pytest.param({"function_calls": [{"name": "f", "arguments": "{"}]}, "engine-garbage", id="broken arguments"),
        pytest.param({"function_calls": [{"name": "f", "arguments": [1]}]}, "engine-garbage", id="a list as arguments"),
    ],
)
def test_failures_have_their_reasons(changes, reason):
    failure = read_envelope({**ENVELOPE, **changes})
    assert isinstance(failure, EngineFailure)
    assert failure.reason == reason


def test_no_validation_means_that_nothing_was_checked():
    bare = {key: value for key, value in ENVELOPE.items() if key != "validation"}
    assert read_envelope(bare).ungrounded is None
    assert read_envelope({**bare, "validation": {"ungrounded": "f.a"}}).ungrounded == ("f.a",)


@given(st.dictionaries(st.sampled_from(list(ENVELOPE)), st.none() | st.text() | st.lists(st.text()) | st.integers()))
def test_no_envelope_raises(envelope):
    assert isinstance(read_envelope(envelope), Envelope | EngineFailure)


@pytest.mark.parametrize(
    ("envelope", "texts"),
    [
        pytest.param(
            Envelope("call", calls=(RawCall("f", {"a": 1}),)),
            ("", '<tool_call>[{"name":"f","arguments":{"a":1}}]</tool_call>'),
            id="a call",
        ),
        pytest.param(
            Envelope("respond", reasoning="Nothing fits."),
            ("<think>\nNothing fits.\n</think>\n", "<tool_call>[]</tool_call>"),
            id="thoughts and no call",
        ),
        pytest.param(
            Envelope("call", calls=(RawCall("f", {"a": 2**70}),)),
            ("", f'<tool_call>[{{"name":"f","arguments":{{"a":{2**70}}}}}]</tool_call>'),
            id="an integer that 64 bits do not hold",
        ),
    ],
)
def test_what_the_engine_wrote_is_put_together_again(envelope, texts):
    assert written(envelope) == texts
