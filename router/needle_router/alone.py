"""Needle alone: a complete OpenAI-compatible answer from the engine, with nobody behind it to ask instead.

What a router would pass on must be answered here: what the engine cannot do at all is refused with a 400 that says
so, what it can do badly is done and named in `x_needle.warnings`, and a failing engine is an error of its own kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from needle_policies import Action
from needle_router.counting import count_usage
from needle_router.errors import (
    BadRequest,
    EngineBusy,
    EngineCrash,
    EngineError,
    EngineGarbage,
    EngineTimeout,
    EngineUnavailable,
)
from needle_router.history import conversation_steps
from needle_router.markers import control_marker, unreadable
from needle_router.pipeline import Attempt, Pipeline
from needle_router.preparing import Prepared
from needle_router.reply import Stamp, calls_reply, extension, text_reply
from needle_router.surfaces.chat_answers import arguments_text
from needle_router.surfaces.ids import is_local_call_id
from needle_router.task import EngineFailure, EngineReply, Task
from needle_router.turn import Choice, Format, Reply, Turn

#: Obstacles that end in a 400 when there is no upstream: slug -> (what to tell the client, the parameter at fault).
REFUSED: Mapping[str, tuple[str, str]] = {
    "json-object": (
        "response_format json_object cannot be served: Needle writes no free-form text. "
        "Use json_schema, which is answered by extraction.",
        "response_format",
    ),
    "media-input": ("Needle reads text only: remove image, audio and file parts.", "messages"),
    "tool-kind": ("Only function tools can be served; custom and hosted tools cannot.", "tools"),
    "legacy-functions": ("functions and function_call are not served: use tools and tool_choice.", "functions"),
    "schema-unsupported": ("The schema has a feature that Needle cannot hold", "tools"),
    "control-marker": ("The text spells a chat-template marker of the engine; remove it.", "messages"),
    "bad-text": ("The text holds a NUL character or a lone surrogate; remove it.", "messages"),
    "empty-turn": ("There is no user text to act on.", "messages"),
    "tool-choice-unknown": ("tool_choice has an unknown form or names a tool that is not declared.", "tool_choice"),
    "modalities": ("Needle answers in text only; remove the audio modality.", "modalities"),
}

#: Engine outcomes that are an error for the client when nobody else can answer.
ENGINE_ERRORS: Mapping[str, type[EngineError]] = {
    "engine-busy": EngineBusy,
    "engine-timeout": EngineTimeout,
    "engine-crash": EngineCrash,
    "engine-garbage": EngineGarbage,
    "engine-loading": EngineUnavailable,
    "engine-off": EngineUnavailable,
}


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply of Needle alone and the attempt behind it."""

    reply: Reply
    attempt: Attempt


#: What is said of a schema that has no problem of its own but cannot be a tool's.
NOT_AN_OBJECT = "its root is not an object with properties"
REQUIRED_WARNING = "tool_choice required cannot be enforced: Needle decides whether to call a tool"


class Alone:
    """Answers turns without an upstream. More tools than `max_tools` are served with a warning."""

    def __init__(self, pipeline: Pipeline, *, max_prompt_tokens: int, max_tools: int = 20) -> None:
        self.pipeline = pipeline
        self.max_prompt_tokens = max_prompt_tokens
        self.max_tools = max_tools

    async def answer(
        self, turn: Turn, stamp: Stamp, *, reason: str, show: bool, max_new_tokens: int | None = None
    ) -> Answered:
        """One reply, or a `RouterError` whose status and code fit what went wrong."""
        attempt = await self.attempt(turn, max_new_tokens=max_new_tokens)
        return Answered(self.reply(attempt.prepared, attempt, stamp, reason=reason, show=show), attempt)

    async def attempt(self, turn: Turn, *, system: str | None = None, max_new_tokens: int | None = None) -> Attempt:
        """Run the engine, or raise; `system` replaces the facts, `max_new_tokens` can only lower the limit."""
        prepared = self.prepare(turn)
        if system is not None:
            prepared = with_system(prepared, system)
        if max_new_tokens is not None:
            lowered = min(max_new_tokens, prepared.task.max_new_tokens)
            prepared = replace(prepared, task=replace(prepared.task, max_new_tokens=lowered))
        self.refuse(prepared)
        attempt = await self.pipeline.attempt(prepared)
        if isinstance(attempt.outcome, EngineFailure):
            raise engine_error(attempt.outcome)
        return attempt

    def prepare(self, turn: Turn) -> Prepared:
        """As in the pipeline, but a turn after tool results feeds the conversation, or it would repeat its call."""
        steps = None
        if "tool-result-turn" in turn.obstacles:
            steps = conversation_steps(turn, is_local_call_id)
        return self.pipeline.prepare(turn, steps=steps)

    def refuse(self, prepared: Prepared) -> None:
        """Raise for what the engine cannot do at all."""
        json_mode = prepared.features.json_object and not prepared.turn.has_tools
        found = (*prepared.features.obstacles, *text_obstacles(prepared.task))
        for slug in (*(("json-object",) if json_mode else ()), *found):
            if slug in REFUSED:
                message, param = REFUSED[slug]
                if slug == "schema-unsupported":
                    message = f"{message}: {prepared.catalogue.problem or NOT_AN_OBJECT}."
                    param = "response_format" if is_extraction(prepared) else param
                raise BadRequest(message, param=param, code=slug.replace("-", "_"))
        steps, most = len(prepared.task.steps), self.pipeline.config.engine.max_replay_steps
        if steps > most:
            raise BadRequest(
                f"The conversation needs {steps} engine steps, the limit is {most}: "
                "send fewer turns or raise engine.max_replay_steps.",
                param="messages",
                code="too_many_steps",
            )
        tokens = self.pipeline.count(prepared.task)
        if tokens > self.max_prompt_tokens:
            raise BadRequest(
                f"The prompt is {tokens} tokens long, the limit is {self.max_prompt_tokens}: "
                "shorten it or declare fewer tools.",
                param="messages",
                code="context_length_exceeded",
            )

    def reply(self, prepared: Prepared, attempt: Attempt, stamp: Stamp, *, reason: str, show: bool) -> Reply:
        """Calls when there are any, else the extraction or the reasoning trace."""
        assert attempt.envelope is not None
        assert attempt.findings is not None
        assert isinstance(attempt.outcome, EngineReply)
        turn, envelope, calls = prepared.turn, attempt.envelope, attempt.findings.calls
        warnings = self.warnings(attempt)
        shown = extension(envelope, attempt.outcome, route="local", reason=reason, warnings=warnings)
        extra = shown if show else None
        words = "" if calls else envelope.reasoning or ""
        usage = count_usage(self.pipeline, attempt)
        if turn.response_format.kind is Format.JSON_SCHEMA and prepared.features.extraction:
            content = arguments_text(calls[0].arguments) if calls else None
            refusal = None if calls else envelope.reasoning or "Nothing in the text fits the schema."
            return text_reply(
                turn, stamp, content=content, refusal=refusal, usage=usage, reasoning=envelope.reasoning, extra=extra
            )
        if calls:
            return calls_reply(turn, calls, stamp, usage=usage, reasoning=envelope.reasoning, extra=extra)
        return text_reply(turn, stamp, content=words, usage=usage, reasoning=envelope.reasoning, extra=extra)

    def warnings(self, attempt: Attempt) -> tuple[str, ...]:
        """Everything that was served although an upstream, if there were one, would have been asked instead."""
        prepared, turn = attempt.prepared, attempt.prepared.turn
        served = [slug for slug in prepared.features.obstacles if slug != "tool-result-turn"]
        if len(prepared.catalogue.tools) > self.max_tools:
            served.append("too-many-tools")
        if turn.tool_choice.mode is Choice.REQUIRED:
            served.append(REQUIRED_WARNING)
        doubts = (*attempt.evidence.failures, *self.unsure(attempt))
        return tuple(dict.fromkeys((*turn.warnings, *served, *doubts)))

    def unsure(self, attempt: Attempt) -> tuple[str, ...]:
        """Why the policies would not answer these calls even though every check passed, if they would not."""
        evidence = replace(attempt.evidence, failures=())
        if not evidence.calls:
            return ()
        features = attempt.prepared.features
        # A canary or shadow doubts nothing; a certificate that is missing does, although its turn would be watched.
        as_if = replace(self.pipeline.situation("on", features), hypothetical=True)
        decision = self.pipeline.policies.judge(features, as_if, evidence)
        doubtful = decision.action in (Action.FORWARD, Action.SHADOW) and decision.reason != "no-policy"
        return (decision.reason,) if doubtful else ()


def is_extraction(prepared: Prepared) -> bool:
    """Whether structured output without tools was asked for, if only by a schema that cannot be served."""
    return prepared.features.extraction or not prepared.turn.tools


def with_system(prepared: Prepared, system: str) -> Prepared:
    """The same request with `system` as it stands in place of the facts, to be counted anew."""
    features = replace(prepared.features, prompt_tokens=0)
    return replace(prepared, task=replace(prepared.task, system=system), features=features)


def text_obstacles(task: Task) -> tuple[str, ...]:
    """What in the texts keeps the engine from reading them; a request without tools is not looked at before."""
    texts = (task.system, *task.steps)
    bad = ("bad-text",) if any(map(unreadable, texts)) else ()
    return (*bad, *(("control-marker",) if any(map(control_marker, texts)) else ()))


def engine_error(failure: EngineFailure) -> EngineError:
    """The error a client sees when the engine failed and nobody else can answer."""
    kind = ENGINE_ERRORS.get(failure.reason, EngineError)
    return kind(failure.detail or failure.reason, code=failure.reason.replace("-", "_"))
