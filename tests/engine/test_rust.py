"""needle-rs and the envelope that is built for it."""

import json
import os
from pathlib import Path

import pytest
from tests.engine.support import LIGHTS, pool, task, tool

from needle_router.config.schema import Engine
from needle_router.engine.base import EngineState
from needle_router.engine.rust import Generated, cut_envelope, envelope_of, overflow, peak_ram_mb, read_calls
from needle_router.engine.session import Refusal
from needle_router.models import tiny_needle_path

CALLS = [{"name": "set_lights", "arguments": {"room": "kitchen", "on": True}}]
PAYLOAD = json.dumps(CALLS)


def generated(payload=PAYLOAD, *, thinking=None, out_of_tokens=False, prompt_tokens=78):
    return Generated(f"<tool_call>{payload}</tool_call>", payload, thinking, out_of_tokens, prompt_tokens)


@pytest.mark.parametrize(
    "output, expected",
    [
        pytest.param(
            {"text": "t", "tool_call": "[]", "thinking": "hm", "prompt_tokens": 9, "stop_reason": "ImEnd"},
            Generated("t", "[]", "hm", False, 9),
            id="generation 2",
        ),
        pytest.param(
            {"text": "t", "tool_call": None, "reasoning": "hm", "positions": 9, "stop_reason": "MaxTokens"},
            Generated("t", None, "hm", True, None),
            id="generation 3",
        ),
        pytest.param(
            {"text": "", "tool_call": None, "reasoning": None, "positions": 512, "stop_reason": "MaxSeqLen"},
            Generated("", None, None, False, None, out_of_window=True),
            id="generation 3 at the end of its window",
        ),
    ],
)
def test_both_generations_output_is_read(output, expected):
    assert Generated.of(output) == expected


def test_a_call_makes_a_call_envelope_without_a_validation_of_its_own():
    assert envelope_of(generated(thinking="kitchen"), CALLS, 0.9, 27.5) == {
        "type": "call",
        "success": True,
        "error": None,
        "error_code": None,
        "function_calls": CALLS,
        "reasoning": "kitchen",
        "confidence": 0.9,
        "peak_ram_mb": 27.5,
    }


def test_an_empty_list_is_a_respond_and_no_head_is_no_confidence():
    envelope = envelope_of(generated("[]"), [], None, 27.5)
    assert (envelope["type"], envelope["function_calls"], envelope["confidence"]) == ("respond", [], None)


@pytest.mark.parametrize(
    "completion, calls",
    [
        pytest.param(generated(), CALLS, id="a list"),
        pytest.param(generated(json.dumps(CALLS[0])), CALLS, id="a single call"),
        pytest.param(generated("[]"), [], id="no call"),
        pytest.param(generated('[{"', out_of_tokens=True), None, id="cut within the call"),
        pytest.param(generated(None, out_of_tokens=True), None, id="cut before the call"),
    ],
)
def test_the_calls_of_a_completion(completion, calls):
    assert read_calls(completion) == calls


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param('[{"name":"a","arguments":{"b":tre}}]', id="no JSON"),
        pytest.param("3", id="a number"),
        pytest.param(None, id="no call markers"),
    ],
)
def test_a_completion_that_ended_by_itself_and_is_no_call_list_is_garbage(payload):
    with pytest.raises(Refusal) as refused:
        read_calls(generated(payload))
    assert refused.value.reason == "engine-garbage"


@pytest.mark.parametrize(
    "prompt_tokens, cut",
    [(767, False), (768, True), (900, True), (None, False)],
)
def test_a_prompt_that_fills_its_room_may_have_been_cut(prompt_tokens, cut):
    problem = overflow(generated(prompt_tokens=prompt_tokens), 1024, 256)
    assert (problem is not None) is cut
    if problem:
        assert (problem["success"], problem["error_code"]) == (False, "context_overflow")


def test_a_window_that_is_not_told_cannot_be_checked():
    assert overflow(generated(prompt_tokens=10**6), None, 256) is None


def test_a_cut_call_looks_like_the_vendor_s():
    assert cut_envelope(4)["error_code"] == "truncated"
    assert cut_envelope(4)["success"] is False


def test_the_peak_of_this_process_is_some_megabytes():
    assert 5 < peak_ram_mb() < 10_000


def test_the_packaged_model_is_a_generation_2_archive():
    assert tiny_needle_path().read_bytes()[:4] == (0x05E12A83).to_bytes(4, "little")


TIMER = tool("set_timer", minutes="integer") | {"description": "Start a countdown timer"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text, calls",
    [
        ("turn off the bedroom lights", [{"name": "set_lights", "arguments": {"room": "bedroom", "on": False}}]),
        ("set a timer for 25 minutes", [{"name": "set_timer", "arguments": {"minutes": 25}}]),
        ("tell me a joke", []),
    ],
)
async def test_the_tiny_model_really_decides(text, calls):
    async with pool(Engine(backend="rust", model="tiny")) as engine:
        reply = await engine.complete(task(text, tools=(LIGHTS, TIMER)), deadline_s=30)
    assert reply.envelope["function_calls"] == calls
    assert reply.envelope["type"] == ("call" if calls else "respond")
    assert "validation" not in reply.envelope


@pytest.mark.anyio
async def test_a_small_budget_is_told_as_truncated_and_a_long_prompt_as_overflow():
    async with pool(Engine(backend="rust", model="tiny")) as engine:
        short = await engine.complete(task("turn on the kitchen lights", max_new_tokens=4), deadline_s=30)
        long = await engine.complete(task("kitchen lights " * 400), deadline_s=30)
    assert short.envelope["error_code"] == "truncated"
    assert long.envelope["error_code"] == "context_overflow"


@pytest.mark.anyio
async def test_it_makes_no_call_after_a_tool_result_because_it_has_no_memory():
    async with pool(Engine(backend="rust", model="tiny")) as engine:
        reply = await engine.complete(task("turn on the kitchen lights", '[{"ok":true}]'), deadline_s=30)
    assert (reply.envelope["type"], reply.envelope["function_calls"]) == ("respond", [])


@pytest.mark.anyio
async def test_a_path_to_an_archive_is_run(tmp_path):
    copy = tmp_path / "mine.cact"
    copy.write_bytes(tiny_needle_path().read_bytes())
    async with pool(Engine(backend="rust", model=str(copy))) as engine:
        reply = await engine.complete(task("turn on the kitchen lights", system=""), deadline_s=30)
    assert reply.envelope["function_calls"] == CALLS


@pytest.mark.anyio
@pytest.mark.parametrize(
    "model, detail",
    [
        pytest.param("needle-2", "run `needle-router pull needle-2 --backend rust`", id="not fetched"),
        pytest.param("/nowhere/x.cact", "engine.model /nowhere/x.cact cannot be read: No such file", id="no file"),
        pytest.param(__file__, "is not a .cact archive (tag 0x", id="another file"),
    ],
)
async def test_what_cannot_be_loaded_is_a_failed_engine_that_says_why(tmp_path, model, detail):
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    settings = Engine(backend="rust", model=model)
    async with pool(settings, environ=environ, wait_for=EngineState.FAILED) as engine:
        assert detail in engine.health().detail


RANDOM_3 = Path(__file__).parent.parent / "native" / "needle3-random.cact"


@pytest.mark.anyio
async def test_an_archive_of_generation_3_says_when_its_window_is_full():
    async with pool(Engine(backend="rust", model=str(RANDOM_3), max_new_tokens=4)) as engine:
        # The file's window is 512 tokens.
        reply = await engine.complete(task("kitchen " * 400, max_new_tokens=4), deadline_s=60)
        assert (reply.envelope["success"], reply.envelope["error_code"]) == (False, "context_overflow")
        # Its weights are noise: what it writes is no call, and the next request is served.
        for _ in range(2):
            noise = await engine.complete(task("turn on the kitchen lights", max_new_tokens=4), deadline_s=60)
            assert (noise.envelope["success"], noise.envelope["error_code"]) == (False, "truncated")
        assert engine.health().restarts == 0
