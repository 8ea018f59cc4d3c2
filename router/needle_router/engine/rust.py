"""needle-rs: a pure-Rust runtime of `.cact` archives; no hub, no vendor library. It carries the packaged tiny model.

It differs from the vendor's engine in four ways that show here. It has no session: each call reads system, tools and
one text anew. It gives no envelope, so one is built, without a `validation` key because it makes no grounding check of
its own. It cuts a prompt that is too long without a word, which its token count gives away. And it holds the GIL for a
whole call, one more reason for a process of its own.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from needle_router.engine.archives import TINY, archive_generation, cactus_cache, rust_archive
from needle_router.engine.pins import check_pins
from needle_router.engine.session import LoadFailed, Refusal

#: `stop_reason` when the budget ran out, and when the window did; anything else is the model's own end.
OUT_OF_TOKENS, OUT_OF_WINDOW = "MaxTokens", "MaxSeqLen"


@dataclass(frozen=True, slots=True)
class Generated:
    """One generation: the completion, the JSON between its call markers, its thoughts, and how it ended."""

    text: str
    payload: str | None
    thinking: str | None
    out_of_tokens: bool
    prompt_tokens: int | None = None
    out_of_window: bool = False

    @classmethod
    def of(cls, output: Mapping[str, Any]) -> Generated:
        """Read what `generate` returns; generation 3 says `reasoning` and `positions` where 2 says `thinking`."""
        return cls(
            text=output["text"],
            payload=output.get("tool_call"),
            thinking=output.get("thinking") or output.get("reasoning"),
            out_of_tokens=output.get("stop_reason") == OUT_OF_TOKENS,
            prompt_tokens=output.get("prompt_tokens"),
            out_of_window=output.get("stop_reason") == OUT_OF_WINDOW,
        )


class RustLibrary:
    """`model` is "tiny", the path of a `.cact`, or needle-2 / needle-3 from the cache of cactus-needle."""

    remembers = False

    def __init__(self, model: str, *, environ: Mapping[str, str] | None = None) -> None:
        self._model = model
        self._environ = os.environ if environ is None else environ
        self._engine: Any = None
        self._window: int | None = None
        self._system, self._tools = "", "[]"

    def load(self) -> None:
        """Read the archive. Raises LoadFailed."""
        try:
            import needle_rs
        except ImportError as error:
            raise LoadFailed(f"the package needle-rs cannot be imported: {error}") from error
        cache = cactus_cache(self._environ)
        path = rust_archive(self._model, cache_root=cache)
        check_pins([path], cache)
        generation = archive_generation(path)
        try:
            if generation == 2:
                self._engine = needle_rs.V2Engine.load(str(path))
                self._window = self._engine.config().get("max_seq_len")
            else:
                self._engine = needle_rs.V3Engine.load(str(path))
        except (OSError, ValueError, RuntimeError) as error:
            raise LoadFailed(f"{path} does not load: {error}") from error

    def init(self, system: str, tools: str) -> None:
        """Keep system and tools for the calls to come."""
        # The tiny model was trained without a system text; the date's digits leak into its answers.
        self._system, self._tools = "" if self._model == TINY else system, tools

    def reset(self) -> None:
        """Nothing to forget."""

    def complete(self, text: str, max_new_tokens: int) -> Mapping[str, Any]:
        """Read one text and build the envelope."""
        try:
            output = self._engine.generate(
                text, self._tools, max_new_tokens=max_new_tokens, constrain=True, system=self._system or None
            )
        except (ValueError, RuntimeError) as error:
            raise Refusal("engine-error", str(error)) from error
        generated = Generated.of(output)
        if problem := overflow(generated, self._window, max_new_tokens):
            return problem
        calls = read_calls(generated)
        if calls is None:
            return cut_envelope(max_new_tokens)
        return envelope_of(generated, calls, self._confidence(text, generated), peak_ram_mb())

    def _confidence(self, text: str, generated: Generated) -> float | None:
        # The head scores a judgement already made: without the completion it reads near zero.
        score = self._engine.confidence_for(text, self._tools, generated.text)
        return None if score is None else float(score)


def overflow(generated: Generated, window: int | None, max_new_tokens: int) -> Mapping[str, Any] | None:
    """An error envelope when the prompt fills all the room it has: it was cut, or nobody can tell that it was not.

    Generation 3 says so itself; generation 2 cuts without a word, but counts.
    """
    if generated.out_of_window:
        return overflow_envelope("prompt and answer fill the window of the model")
    if window is None or generated.prompt_tokens is None or generated.prompt_tokens < window - max_new_tokens:
        return None
    return overflow_envelope(f"the prompt fills the {window - max_new_tokens} tokens that the window leaves for it")


def overflow_envelope(error: str) -> Mapping[str, Any]:
    """What the vendor's engine says of a prompt that is too long."""
    return {
        "type": "error",
        "success": False,
        "error": error,
        "error_code": "context_overflow",
        "function_calls": [],
    }


def read_calls(generated: Generated) -> list[Any] | None:
    """The calls of a completion, None when the token budget cut it. Raises Refusal for text that is no call list."""
    if generated.payload is not None:
        try:
            calls = orjson.loads(generated.payload)
        except orjson.JSONDecodeError as error:
            if generated.out_of_tokens:
                return None
            raise Refusal("engine-garbage", f"the call is not JSON: {error}") from error
        if isinstance(calls, dict):
            calls = [calls]
        if isinstance(calls, list):
            return calls
        raise Refusal("engine-garbage", f"the call is a {type(calls).__name__}")
    if generated.out_of_tokens:
        return None
    raise Refusal("engine-garbage", "the completion has no call markers")


def cut_envelope(max_new_tokens: int) -> Mapping[str, Any]:
    """What the vendor's engine says when the budget runs out within a call."""
    return {
        "type": "call",
        "success": False,
        "error": f"tool call truncated: the budget of {max_new_tokens} tokens is exhausted",
        "error_code": "truncated",
        "function_calls": [],
    }


def envelope_of(
    generated: Generated, calls: list[Any], confidence: float | None, peak_mb: float | None
) -> Mapping[str, Any]:
    """The envelope of a whole completion. No speeds: the runtime does not tell prompt and completion time apart."""
    return {
        "type": "call" if calls else "respond",
        "success": True,
        "error": None,
        "error_code": None,
        "function_calls": calls,
        "reasoning": generated.thinking,
        "confidence": confidence,
        "peak_ram_mb": peak_mb,
    }


def peak_ram_mb() -> float:
    """The largest resident size of this process so far, in MB; `ru_maxrss` is KiB on Linux and bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1024), 1)
