"""The `messages` of a chat completion: roles, content as text or as parts, and what of a history stops a local answer.

Content may be a string or a list of parts for every role, null or absent where there are tool calls. Old argument
strings are the client's business: they are kept as text, empty or broken as they may be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from needle_router.turn import Message, PastCall

#: Text that frameworks send as the user's after a failed or invalid answer. The engine is deterministic, so it would
#: only repeat itself: instructor, pydantic-ai, smolagents, langchain output parsers.
CORRECTION = re.compile(
    r"^\s*(?:Correct your JSON ONLY RESPONSE|Recall the function correctly|Observation:|Error:\n)"
    r"|Fix the errors and try again|validation errors? for |^\d+ validation errors?:"
    r"|based on the following errors|Please (?:fix|correct) (?:the|your) (?:mistakes|errors?|tool call)",
    re.IGNORECASE,
)
CORRECTION_WORDS = ("error", "observation:", "correct", "recall the function", "please fix")
#: The sentences stand at one end of the text; one longer than both ends together is too long for the engine anyway.
CORRECTION_CHARS = 4000
#: Messages that set the scene; they neither ask nor answer.
SCENE_ROLES = ("system", "developer")
ROLES = (*SCENE_ROLES, "user", "assistant", "tool", "function")
TEXT_PARTS = {"text": "text", "refusal": "refusal", "input_text": "text", "output_text": "text"}


class OddMessage(ValueError):
    """A message of a form that the API does not have."""


def messages(value: Any) -> tuple[Message, ...]:
    """Read `messages`; raises `OddMessage` for a form that cannot be understood."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise OddMessage("messages is not a list of objects")
    return tuple(_message(item) for item in value)


def _message(item: Mapping[str, Any]) -> Message:
    role = item.get("role")
    if role not in ROLES:
        raise OddMessage("a message has no role that the API knows")
    text, media = _content(item.get("content"))
    identifier = item.get("tool_call_id")
    return Message(
        role=role,
        text=text,
        media=media or bool(item.get("audio")),
        calls=_past_calls(item.get("tool_calls"), item.get("function_call")),
        tool_call_id=identifier if isinstance(identifier, str) else None,
    )


def _content(value: Any) -> tuple[str, bool]:
    """The text, and whether there was anything that is not text."""
    if value is None:
        return "", False
    if isinstance(value, str):
        return value, False
    if not isinstance(value, list):
        raise OddMessage(f"content is {type(value).__name__}")
    texts, media = [], False
    for part in value:
        if isinstance(part, str):
            texts.append(part)
            continue
        key = TEXT_PARTS.get(part.get("type", "")) if isinstance(part, dict) and _is_text_type(part) else None
        text = part.get(key) if key else None
        if isinstance(text, str):
            texts.append(text)
        else:
            media = True
    return "\n".join(texts), media


def _is_text_type(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("type"), str)


def _past_calls(calls: Any, legacy: Any) -> tuple[PastCall, ...]:
    items = list(calls) if isinstance(calls, list) else []
    if isinstance(legacy, dict):
        items.append({"id": "", "function": legacy})
    return tuple(_past_call(item) for item in items if isinstance(item, dict))


def _past_call(item: Mapping[str, Any]) -> PastCall:
    function = item.get("function")
    function = function if isinstance(function, dict) else {}
    return PastCall(_text(item.get("id")), _text(function.get("name")), _text(function.get("arguments")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def obstacles(history: Sequence[Message]) -> tuple[str, ...]:
    """Reason slugs of what the history itself rules out, most decisive first."""
    spoken = [message for message in history if message.role not in SCENE_ROLES]
    if not spoken:
        return ("empty-turn",)
    # A system message behind an answer does not ask again: the engine would read the old request and repeat it.
    last = spoken[-1]
    found = []
    if any(message.role == "function" for message in history):
        found.append("legacy-functions")
    if any(message.media for message in current_turn(history)):
        found.append("media-input")
    if last.role in ("tool", "function"):
        found.append("tool-result-turn")
    elif last.role == "assistant":
        found.append("prefill")
    elif last.role == "user" and is_correction(last.text):
        found.append("correction-turn")
    if last.role not in ("tool", "function") and not _last_user(history).strip():
        found.append("empty-turn")
    return tuple(found)


def is_correction(text: str) -> bool:
    """Whether a framework, not a person, speaks of an answer that was invalid or of a tool's result."""
    ends = (text,) if len(text) <= 2 * CORRECTION_CHARS else (text[:CORRECTION_CHARS], text[-CORRECTION_CHARS:])
    # Each wording has one of these words; looking for them first saves the pattern's slow walk over ordinary text.
    return any(_may_correct(end.lower()) and CORRECTION.search(end) is not None for end in ends)


def _may_correct(lowered: str) -> bool:
    return any(word in lowered for word in CORRECTION_WORDS)


def current_turn(history: Sequence[Message]) -> Sequence[Message]:
    """The messages since the assistant last spoke in words.

    An isolated session reads the last user message only, but "click it" after a screenshot in the same turn means the
    picture; a picture that the assistant has already talked about does not stop a later plain command.
    """
    for index in range(len(history) - 1, -1, -1):
        if history[index].role == "assistant" and history[index].text:
            return history[index + 1 :]
    return history


def _last_user(history: Sequence[Message]) -> str:
    return next((message.text for message in reversed(history) if message.role == "user"), "")
