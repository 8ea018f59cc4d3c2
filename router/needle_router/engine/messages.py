"""What the router and an engine process say to each other, as plain JSON objects.

router -> child   setup   {"backend", "model", "buffer_bytes", "script"}           once
                  task    {"id", "system", "tools", "steps", "max_new_tokens", "replay"}
child -> router   ready   {"kind": "ready", "rss_bytes"} or {"kind": "failed", "detail"}    once
                  answer  {"kind": "reply", "id", "envelope", ...} or {"kind": "refusal", "id", "reason", "detail"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from needle_router.engine.session import Refusal, SessionReply
from needle_router.task import EngineFailure, EngineOutcome, EngineReply, Task


@dataclass(frozen=True, slots=True)
class Setup:
    """What a child needs to know before it can load; paths are absolute."""

    backend: str
    model: str
    buffer_bytes: int = 1 << 20
    script: str = ""
    tool_index: str = ""

    def message(self) -> dict[str, Any]:
        """As sent."""
        return {
            "backend": self.backend,
            "model": self.model,
            "buffer_bytes": self.buffer_bytes,
            "script": self.script,
            "tool_index": self.tool_index,
        }

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Setup:
        """As received."""
        return cls(
            message["backend"], message["model"], message["buffer_bytes"], message["script"], message["tool_index"]
        )


def task_message(number: int, task: Task) -> dict[str, Any]:
    """A task as sent."""
    return {
        "id": number,
        "system": task.system,
        "tools": task.tools,
        "steps": list(task.steps),
        "max_new_tokens": task.max_new_tokens,
        "replay": task.replay,
    }


def task_of(message: Mapping[str, Any]) -> Task:
    """A task as received."""
    return Task(
        system=message["system"],
        tools=message["tools"],
        steps=tuple(message["steps"]),
        max_new_tokens=message["max_new_tokens"],
        replay=message["replay"],
    )


def reply_message(number: int, reply: SessionReply, rss_bytes: int) -> dict[str, Any]:
    """An answer as sent; the two durations are seconds."""
    return {
        "kind": "reply",
        "id": number,
        "envelope": reply.envelope,
        "replayed_turns": reply.replayed_turns,
        "reinitialized": reply.reinitialized,
        "init_s": reply.init_s,
        "step_s": reply.step_s,
        "said": reply.said,
        "rss_bytes": rss_bytes,
    }


def refusal_message(number: int, refusal: Refusal, compute_s: float, rss_bytes: int) -> dict[str, Any]:
    """A refusal as sent."""
    return {
        "kind": "refusal",
        "id": number,
        "reason": refusal.reason,
        "detail": refusal.detail,
        "compute_s": compute_s,
        "rss_bytes": rss_bytes,
    }


def outcome_of(message: Mapping[str, Any], *, queue_wait_s: float) -> EngineOutcome:
    """An answer as received."""
    if message["kind"] == "refusal":
        return EngineFailure(message["reason"], message["detail"], queue_wait_s, message["compute_s"])
    return EngineReply(
        envelope=message["envelope"],
        queue_wait_s=queue_wait_s,
        compute_s=message["init_s"] + message["step_s"],
        replayed_turns=message["replayed_turns"],
        reinitialized=message["reinitialized"],
        said=tuple(map(tuple, message["said"])),
    )
