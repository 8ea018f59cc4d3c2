"""Token counts of what was never sent: local answers, and requests whose upstream was not asked or not waited for."""

from __future__ import annotations

from needle_router.envelopes import written
from needle_router.pipeline import Attempt, Pipeline
from needle_router.preparing import Prepared
from needle_router.tokens import CHARS_PER_TOKEN
from needle_router.turn import Usage

#: Longer prompts are not counted token by token: it would hold up other requests for a figure that is an estimate.
MAX_COUNTED_CHARS = 8_000


def count_usage(pipeline: Pipeline, attempt: Attempt) -> Usage:
    """`usage` of a local answer: what the engine read and wrote. `estimated` says that no tokenizer was at hand."""
    assert attempt.envelope is not None
    prepared, count = attempt.prepared, pipeline.tokens.count
    thoughts, calls = written(attempt.envelope)
    completion = count(thoughts + calls)
    return Usage(
        prompt_tokens=prepared.features.prompt_tokens or pipeline.count(prepared.task),
        completion_tokens=completion,
        reasoning_tokens=max(0, completion - count(calls)) if thoughts else 0,
        estimated=not pipeline.tokens.exact,
    )


def whole_prompt(pipeline: Pipeline, prepared: Prepared, words: str = "") -> Usage:
    """What an upstream reads of a request, all messages and tools, and `words` as its answer.

    Always estimated: the vocabulary that counts is Needle's, not the upstream's.
    """
    texts = [message.text for message in prepared.turn.messages]
    texts += [call.arguments for message in prepared.turn.messages for call in message.calls]
    text = "\n".join((prepared.task.tools, *texts))
    long = len(text) > MAX_COUNTED_CHARS
    prompt_tokens = len(text) // CHARS_PER_TOKEN if long else pipeline.tokens.count(text)
    return Usage(prompt_tokens, pipeline.tokens.count(words) if words else 0, estimated=True)
