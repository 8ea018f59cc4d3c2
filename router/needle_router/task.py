"""What the engine is asked and what it said, as plain values shared by the pure core and the engine tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """What one request asks of the engine.

    `tools` is the JSON text of a flat list, keys in the order name, description, parameters. `steps` are the texts fed,
    one `complete` each; an isolated session gets exactly one. `max_new_tokens` bounds each completion. `replay` keeps
    the session when system, tools and the fed prefix match (engine.session = "replay"). `context` names what the client
    asked beside these texts; the engine does not read it, but two tasks that differ in it are two questions.
    """

    system: str
    tools: str
    steps: tuple[str, ...]
    max_new_tokens: int = 256
    replay: bool = False
    context: str = ""


@dataclass(frozen=True, slots=True)
class EngineReply:
    """The last envelope of a task as the engine gave it (a JSON object), and how it came about.

    `queue_wait_s` and `compute_s` are seconds. `replayed_turns` counts the texts fed, `reinitialized` says that system
    or tools had to be loaded anew. `cached` means that no engine ran. `said` are the names of the calls that the engine
    made after each of the texts fed before the last one.
    """

    envelope: Mapping[str, Any]
    queue_wait_s: float = 0.0
    compute_s: float = 0.0
    replayed_turns: int = 1
    reinitialized: bool = True
    cached: bool = False
    said: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """No usable envelope.

    `reason` is a slug: engine-busy, engine-timeout, engine-crash, engine-garbage, engine-error, engine-loading or
    engine-off, truncated. `detail` is for logs, and for clients only when there is no upstream to ask instead.
    """

    reason: str
    detail: str = ""
    queue_wait_s: float = 0.0
    compute_s: float = 0.0


EngineOutcome = EngineReply | EngineFailure


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as the engine wrote it; `arguments` is an object ({} where the engine left it out)."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Envelope:
    """The engine's JSON envelope, read tolerantly.

    `confidence` is None when absent, not a number, NaN or outside 0..1. `ungrounded` is None when the engine gave no
    `validation` at all (it then made no grounding check of its own). `suppressed` counts withheld calls.
    """

    kind: str
    calls: tuple[RawCall, ...] = ()
    suppressed: int = 0
    reasoning: str | None = None
    confidence: float | None = None
    ungrounded: tuple[str, ...] | None = None
    negation: bool = False
    prefill_tps: float | None = None
    decode_tps: float | None = None
    peak_ram_mb: float | None = None
