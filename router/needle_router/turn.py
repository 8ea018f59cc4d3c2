"""Neutral values: what a request asks and what an answer says, whatever API surface it came by.

A `Turn` is made once at the edge from the client's bytes and never turned back into a request: what is forwarded is
`Turn.raw`, the very bytes that came in. Decoded JSON inside these values is shared, so treat it as read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """One declared function tool. `parameters` is the client's own schema, None where the key was absent."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with decoded arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call found in the history. `arguments` is the client's text: it may be empty or broken JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `text` joins its text parts; `media` says that it had image, audio or file parts."""

    role: str
    text: str = ""
    media: bool = False
    calls: tuple[PastCall, ...] = ()
    tool_call_id: str | None = None


class Choice(StrEnum):
    """`tool_choice`, normalised (chat completions: none, auto, required, named function, allowed_tools)."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The choice and, for a named function or `allowed_tools`, the names it narrows to (None = all declared)."""

    mode: Choice = Choice.AUTO
    names: tuple[str, ...] | None = None


class Format(StrEnum):
    """`response_format.type`."""

    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The wanted form of the answer's text; `schema` and `name` only for json_schema."""

    kind: Format = Format.TEXT
    name: str = ""
    schema: Any = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One request, parsed.

    `obstacles` are reason slugs of fields that only the upstream can honour (`many-choices`, `logprobs`, ...), in
    the order of the field table; `warnings` name fields that a local answer accepts and ignores. `tools` are the
    function tools in the client's order; `has_tools` is true when any tool at all was declared.
    """

    raw: bytes
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    has_tools: bool = False
    tool_choice: ToolChoice = ToolChoice()
    response_format: ResponseFormat = ResponseFormat()
    parallel: bool = True
    stream: bool = False
    include_usage: bool = False
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    obstacles: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that may be called: `tools` narrowed by `tool_choice`."""
        if self.tool_choice.mode is Choice.NONE:
            return ()
        names = self.tool_choice.names
        return self.tools if names is None else tuple(t for t in self.tools if t.name in names)

    @property
    def user_text(self) -> str:
        """The text of the last user message, "" if there is none."""
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def system_texts(self) -> tuple[str, ...]:
        """System and developer texts, in order."""
        return tuple(m.text for m in self.messages if m.role in ("system", "developer"))


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as OpenAI's `usage` has them. `cached_tokens` are part of `prompt_tokens`, never added to them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """Prompt plus completion."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def without_reasoning(self) -> Usage:
        """What another model would have been paid for: the engine's thoughts are its own affair."""
        return replace(self, completion_tokens=self.completion_tokens - self.reasoning_tokens, reasoning_tokens=0)


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call of an answer, ready for the wire: `arguments` is JSON text, "{}" when empty."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of ours, before it is written as JSON or as a stream.

    `created` is in Unix seconds. `extension` is the `x_needle` object, None when `server.expose` hides it.
    """

    id: str
    created: int
    model: str
    calls: tuple[AnsweredCall, ...] = ()
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    finish_reason: str = "stop"
    usage: Usage = Usage()
    fingerprint: str = ""
    extension: Mapping[str, Any] | None = field(default=None)
