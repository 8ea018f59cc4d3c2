"""Every reason slug, with the sentence that explains it: the closed vocabulary of logs, metrics, headers and docs."""

from __future__ import annotations

from types import MappingProxyType

#: slug -> what it means, for a reader of a log line.
REASONS = MappingProxyType(
    {
        # Answered here.
        "confident": "every check passed and the score reached the threshold",
        "merged": "local calls stand, and the upstream adds words or missing calls",
        "local-model": "the request named the local model, so Needle alone answered",
        "no-upstream": "no upstream is configured, so Needle alone answered",
        "extracted": "structured extraction passed every check",
        # Not looked at.
        "not-chat": "not a chat completion request: passed through unread",
        "mode-off": "the router or the request is in mode off",
        "shadow": "shadow mode: the upstream answers, the engine only runs beside it",
        "force-upstream": "the request asked for the upstream (x-needle-mode)",
        "unparsed": "the body is not a JSON object that can be read with certainty",
        "encoded-body": "the body is compressed or not JSON by its content type",
        "internal-error": "a fault of the router itself: passed on",
        # What the engine cannot serve.
        "no-tools": "no tools are declared",
        "tool-choice-none": "tool_choice is none",
        "tool-choice-unknown": "tool_choice has a form that is not understood or names no declared tool",
        "tool-kind": "a custom or hosted tool is declared",
        "legacy-functions": "the old functions / function_call fields are used",
        "duplicate-tools": "two tools have the same name",
        "too-many-tools": "more tools than guards.max_tools",
        "schema-unsupported": "a tool's schema has a feature that the engine cannot hold",
        "media-input": "an image, audio or file part",
        "modalities": "audio output is asked for",
        "many-choices": "n is greater than 1",
        "logprobs": "logprobs or logit_bias is asked for",
        "stored": "store is true: the answer must be retrievable later",
        "moderation": "moderation is asked for",
        "web-search": "web_search_options is set",
        "json-object": "response_format json_object without tools",
        "extraction-off": "structured extraction is not answered here (extract.local)",
        "tool-result-turn": "the last message is a tool result",
        "correction-turn": "the user reports a failed or invalid call: a deterministic engine would repeat it",
        "prefill": "the last message is the assistant's",
        "empty-turn": "there is no user text",
        "prompt-too-long": "the prompt is longer than guards.max_prompt_tokens",
        "too-many-steps": "replaying the conversation takes more than engine.max_replay_steps",
        "control-marker": "the text spells a chat-template marker",
        "bad-text": "the text cannot be given to the engine (lone surrogate or NUL)",
        # The engine's own outcomes.
        "engine-off": "the engine is switched off",
        "engine-loading": "the engine is still loading",
        "engine-busy": "the engine's queue is full",
        "engine-error": "the engine reported an error",
        "engine-timeout": "the engine did not answer within its deadline",
        "engine-crash": "the engine process died",
        "engine-garbage": "the engine's answer is not an envelope",
        "truncated": "the engine's answer was cut off",
        # Verifiers.
        "no-call": "the engine made no call",
        "extraction-uncertain": "structured extraction did not pass every check",
        "unknown-tool": "the engine named a tool that may not be called",
        "invalid-arguments": "the arguments break the tool's schema",
        "negated": "the request says not to do it",
        "ungrounded": "an argument stands nowhere in the request or the facts",
        "state-question": "a question about a state would be answered by changing it",
        "conditional": "the wish hangs on a condition or on a later moment",
        "intents-uncovered": "the request holds more wishes than the engine made calls",
        "parallel-forbidden": "several calls, and parallel_tool_calls is false",
        "repeated-call": "the same call was already made in this conversation",
        "unasked": "after a tool result, a call of a tool that the user's words do not name",
        "stop-string": "a stop string occurs in the arguments",
        "max-tokens": "the call is longer than max_tokens",
        # Score and policy.
        "confidence-unknown": "the engine gave no score",
        "below-threshold": "the score is below the threshold",
        "tool-never": "a policy or a mark in the tool's schema keeps this tool upstream",
        "risk-never": "side-effects keeps this tool upstream, by its name or by its schema",
        "below-risk": "the score is below what side-effects asks of a call of this risk",
        "shadow-policy": "a shadow policy: the upstream answers, the engine is only compared",
        "canary-rest": "this conversation is not in the canary's share",
        "gate-shut": "answers for this set of tools were hardly ever used of late, so the engine is not asked",
        "race-lost": "raced: the upstream's answer began before a local one had passed",
        "race-left": "raced: the client left while the engine and the upstream were both at work",
        "budget-lowered": "the budget is spent, and the score reached the lowered threshold",
        "budget-exceeded": "the budget is spent, and nothing goes to the upstream any more",
        "no-policy": "no policy had an opinion",
    }
)
