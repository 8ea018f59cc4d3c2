"""What the engine decided, put into words of the API: local calls, and the answers of Needle alone.

Pure: identifiers and the time come in as arguments (`Stamp`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from needle_router.surfaces.chat_answers import arguments_text
from needle_router.task import EngineReply, Envelope
from needle_router.turn import AnsweredCall, Call, Reply, Turn, Usage


@dataclass(frozen=True, slots=True)
class Stamp:
    """What makes an answer unique: its id, its time in Unix seconds, the engine's name, and a source of call ids."""

    id: str
    created: int
    fingerprint: str
    call_id: Callable[[], str]


def extension(
    envelope: Envelope, outcome: EngineReply, *, route: str, reason: str, warnings: Sequence[str], policy: str = ""
) -> Mapping[str, Any]:
    """The `x_needle` object. Rates are tokens per second, memory in MB, times in seconds.

    `policy` is the kind that decided, "" where none was asked.
    """
    shown: dict[str, Any] = {
        "type": envelope.kind,
        "confidence": envelope.confidence,
        "reasoning": envelope.reasoning,
        "validation": {"ungrounded": list(envelope.ungrounded or ()), "negation": envelope.negation},
        "prefill_tps": envelope.prefill_tps,
        "decode_tps": envelope.decode_tps,
        "peak_ram_mb": envelope.peak_ram_mb,
        "replayed_turns": outcome.replayed_turns,
        "reinitialized": outcome.reinitialized,
        "queue_wait_seconds": round(outcome.queue_wait_s, 6),
        "compute_seconds": round(outcome.compute_s, 6),
        "cached": outcome.cached,
        "route": route,
        "reason": reason,
        "policy": policy,
        "warnings": list(warnings),
    }
    return shown


def template_extension(*, route: str, reason: str, warnings: Sequence[str], policy: str = "") -> Mapping[str, Any]:
    """The `x_needle` object of an answer that no engine made: the same fields, with nothing in them."""
    nothing = EngineReply({}, replayed_turns=0, reinitialized=False)
    return extension(Envelope("template"), nothing, route=route, reason=reason, warnings=warnings, policy=policy)


def calls_reply(
    turn: Turn,
    calls: Sequence[Call],
    stamp: Stamp,
    *,
    usage: Usage,
    reasoning: str | None,
    extra: Mapping[str, Any] | None,
) -> Reply:
    """An answer that is tool calls and nothing else: content null, finish_reason tool_calls."""
    return Reply(
        id=stamp.id,
        created=stamp.created,
        model=turn.model,
        calls=tuple(AnsweredCall(stamp.call_id(), c.name, arguments_text(c.arguments)) for c in calls),
        reasoning=reasoning if extra is not None else None,
        finish_reason="tool_calls",
        usage=usage,
        fingerprint=stamp.fingerprint,
        extension=extra,
    )


def text_reply(
    turn: Turn,
    stamp: Stamp,
    *,
    content: str | None,
    refusal: str | None = None,
    usage: Usage,
    reasoning: str | None,
    extra: Mapping[str, Any] | None,
) -> Reply:
    """An answer in words: an extraction, a refusal, or (Needle alone) the reasoning trace."""
    return Reply(
        id=stamp.id,
        created=stamp.created,
        model=turn.model,
        content=content,
        refusal=refusal,
        reasoning=reasoning if extra is not None else None,
        finish_reason="stop",
        usage=usage,
        fingerprint=stamp.fingerprint,
        extension=extra,
    )
