"""Needle alone: a complete OpenAI-compatible answer from the engine, with nobody behind it to ask instead.

What a router would pass on must be answered here: what the engine cannot do at all is refused with a 400 that says
so, what it can do badly is done and named in `x_needle.warnings`, and a failing engine is an error of its own kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from needle_router.errors import (
    BadRequest,
    EngineBusy,
    EngineCrash,
    EngineError,
    EngineGarbage,
    EngineTimeout,
    EngineUnavailable,
)
from needle_router.pipeline import Attempt, Pipeline, Prepared
from needle_router.reply import Stamp, calls_reply, extension, text_reply
from needle_router.surfaces.chat_answers import arguments_text
from needle_router.surfaces.ids import is_local_call_id
from needle_router.task import EngineFailure, EngineReply
from needle_router.translate import conversation_steps
from needle_router.turn import Call, Format, Reply, Turn, Usage

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
    "schema-unsupported": ("A tool's schema has a feature that Needle cannot hold", "tools"),
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


class Alone:
    """Answers turns without an upstream."""

    def __init__(self, pipeline: Pipeline, *, max_prompt_tokens: int) -> None:
        self.pipeline = pipeline
        self.max_prompt_tokens = max_prompt_tokens

    async def answer(self, turn: Turn, stamp: Stamp, *, reason: str, show: bool) -> Answered:
        """One reply, or a `RouterError` whose status and code fit what went wrong."""
        prepared = self.prepare(turn)
        self.refuse(prepared)
        attempt = await self.pipeline.attempt(prepared)
        if isinstance(attempt.outcome, EngineFailure):
            raise engine_error(attempt.outcome)
        return Answered(self.reply(prepared, attempt, stamp, reason=reason, show=show), attempt)

    def prepare(self, turn: Turn) -> Prepared:
        """As in the pipeline, but a turn after tool results feeds the conversation, or it would repeat its call."""
        steps = None
        if "tool-result-turn" in turn.obstacles:
            steps = conversation_steps(turn, is_local_call_id)
        return self.pipeline.prepare(turn, steps=steps)

    def refuse(self, prepared: Prepared) -> None:
        """Raise for what the engine cannot do at all."""
        json_mode = prepared.features.json_object and not prepared.turn.has_tools
        for slug in (*(("json-object",) if json_mode else ()), *prepared.features.obstacles):
            if slug in REFUSED:
                message, param = REFUSED[slug]
                if slug == "schema-unsupported" and prepared.catalogue.problem:
                    message = f"{message}: {prepared.catalogue.problem}."
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
        served = [slug for slug in turn.obstacles if slug != "tool-result-turn"]
        warnings = tuple(dict.fromkeys((*turn.warnings, *served, *attempt.evidence.failures)))
        shown = extension(envelope, attempt.outcome, route="local", reason=reason, warnings=warnings)
        extra = shown if show else None
        words = "" if calls else envelope.reasoning or ""
        usage = self.usage(prepared, calls, words)
        if turn.response_format.kind is Format.JSON_SCHEMA and prepared.features.extraction:
            content = arguments_text(calls[0].arguments) if calls else None
            refusal = None if calls else envelope.reasoning or "Nothing in the text fits the schema."
            return text_reply(
                turn, stamp, content=content, refusal=refusal, usage=usage, reasoning=envelope.reasoning, extra=extra
            )
        if calls:
            return calls_reply(turn, calls, stamp, usage=usage, reasoning=envelope.reasoning, extra=extra)
        return text_reply(turn, stamp, content=words, usage=usage, reasoning=envelope.reasoning, extra=extra)

    def usage(self, prepared: Prepared, calls: tuple[Call, ...], words: str) -> Usage:
        """Tokens of what was read and written, exact when the model's tokenizer is at hand."""
        return count_usage(self.pipeline, prepared, calls, words)


def count_usage(pipeline: Pipeline, prepared: Prepared, calls: tuple[Call, ...], words: str = "") -> Usage:
    """`usage` of a local answer; `estimated` says that no tokenizer was at hand."""
    written = words or "".join(f"{c.name}{arguments_text(c.arguments)}" for c in calls)
    return Usage(
        prompt_tokens=prepared.features.prompt_tokens or pipeline.count(prepared.task),
        completion_tokens=pipeline.tokens.count(written),
        estimated=not pipeline.tokens.exact,
    )


def engine_error(failure: EngineFailure) -> EngineError:
    """The error a client sees when the engine failed and nobody else can answer."""
    kind = ENGINE_ERRORS.get(failure.reason, EngineError)
    return kind(failure.detail or failure.reason, code=failure.reason.replace("-", "_"))
