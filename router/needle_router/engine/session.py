"""One native session, owned by one thread: when to load anew, when to reset, what to feed.

An engine library has a single process-global session that remembers every text fed to it. So a request is either
*isolated* (the session forgets, then reads this request's text) or *replayed* (where system text, tools and the texts
fed so far match, only the new texts are fed; the engine has written its own side already). Loading system and tools is
the dear step and happens only when one of them changed:

    situation                                   fed       loaded anew
    first request                               all       yes
    the next turn of the same conversation      the new   no
    the same texts with other tools             all       yes
    another conversation with the same tools    all       no (reset)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from needle_router.task import Task

TOOL_KEYS = ("name", "description", "parameters")
#: What a library without a memory says after a tool result; it cannot have read what the result answers.
NO_MEMORY: Mapping[str, Any] = {
    "type": "respond",
    "success": True,
    "function_calls": [],
    "reasoning": "This engine reads one text and remembers none: it makes no call after a tool result.",
    "confidence": None,
}


class LoadFailed(Exception):
    """The library or its model cannot be loaded; the message says what to do."""


class Refusal(Exception):
    """A task without a usable envelope: `reason` is a slug, the message its detail."""

    def __init__(self, reason: str, detail: str, *, lost: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        #: The session's state is unknown; system and tools must be loaded again.
        self.lost = lost


class Library(Protocol):
    """An engine as its owner thread sees it. Calls never overlap.

    `remembers` says that texts fed build one conversation; a library that does not is given a single text a task.
    """

    remembers: bool

    def load(self) -> None:
        """Bring the library and its weights into the process. Raises LoadFailed."""
        ...

    def init(self, system: str, tools: str) -> None:
        """Start a session; `tools` is the JSON text of a list. Raises Refusal."""
        ...

    def reset(self) -> None:
        """Forget the texts fed, keep system and tools."""
        ...

    def complete(self, text: str, max_new_tokens: int) -> str | Mapping[str, Any]:
        """Feed one text; the envelope, as an object or as JSON text. Raises Refusal."""
        ...


@dataclass(frozen=True, slots=True)
class SessionReply:
    """The last envelope, and what it took: seconds for loading and for all completions, texts fed.

    `said` are the names of the calls that the engine made after each text fed before the last one.
    """

    envelope: Mapping[str, Any]
    replayed_turns: int
    reinitialized: bool
    init_s: float
    step_s: float
    said: tuple[tuple[str, ...], ...] = ()


class Session:
    """The session logic over a library; every call must come from the thread that made the first one."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._owner: int | None = None
        self._loaded: tuple[str, str] | None = None
        #: The texts in the library's memory, None when unknown.
        self._fed: tuple[str, ...] | None = ()

    def load(self) -> None:
        """Load the library; raises LoadFailed."""
        self._confine()
        self._library.load()

    def run(self, task: Task) -> SessionReply:
        """Run one task. Raises Refusal; the session then starts over with the next task."""
        self._confine()
        check_texts(task)
        try:
            return self._run(task)
        except Refusal as refusal:
            self._fed = None
            if refusal.lost:
                self._loaded = None
            raise

    def _run(self, task: Task) -> SessionReply:
        started = time.perf_counter()
        reinitialized = self._prepare(task)
        fed_before = self._continue(task)
        init_s = time.perf_counter() - started
        envelopes = self._feed(task, task.steps[fed_before:])
        step_s = time.perf_counter() - started - init_s
        # A turn that failed inside the engine is no part of a conversation one could continue.
        *before, envelope = envelopes or [NO_MEMORY]
        self._fed = None if is_failed(envelope) else task.steps
        said = tuple(map(called_names, before))
        return SessionReply(envelope, len(envelopes), reinitialized, init_s, step_s, said)

    def _prepare(self, task: Task) -> bool:
        """Load system and tools when they changed; says whether it did."""
        if self._loaded == (task.system, task.tools):
            return False
        self._loaded = None
        self._library.init(task.system, ordered_tools(task.tools))
        self._loaded, self._fed = (task.system, task.tools), ()
        return True

    def _continue(self, task: Task) -> int:
        """How many of the task's texts the library has in mind already; resets it when that is none."""
        fed = self._fed
        if fed == ():
            return 0
        if task.replay and self._library.remembers and fed is not None and is_prefix(fed, task.steps):
            return len(fed)
        self._library.reset()
        self._fed = ()
        return 0

    def _feed(self, task: Task, steps: Sequence[str]) -> list[Mapping[str, Any]]:
        """What the library said to each text; nothing where it cannot know what the text answers."""
        if not self._library.remembers:
            return self._feed_one(task)
        envelopes = []
        for text in steps:
            # From here on the library's memory is in doubt until every text went well.
            self._fed = None
            envelopes.append(as_envelope(self._library.complete(text, task.max_new_tokens)))
        return envelopes

    def _feed_one(self, task: Task) -> list[Mapping[str, Any]]:
        text = task.steps[-1]
        if len(task.steps) > 1 and is_result(text):
            return []
        return [as_envelope(self._library.complete(text, task.max_new_tokens))]

    def _confine(self) -> None:
        here = threading.get_ident()
        if self._owner is None:
            self._owner = here
        # Two threads inside the library crash the process: better an error that can be read.
        if self._owner != here:
            raise RuntimeError("a native session belongs to the thread that loaded it")


def is_prefix(fed: Sequence[str], steps: Sequence[str]) -> bool:
    """Whether `steps` goes on from `fed`: the same beginning and at least one text more."""
    return 0 < len(fed) < len(steps) and tuple(steps[: len(fed)]) == tuple(fed)


def called_names(envelope: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of an envelope's calls, as far as it has any."""
    calls = envelope.get("function_calls")
    named = [call.get("name") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return tuple(name for name in named if isinstance(name, str))


def is_failed(envelope: Mapping[str, Any]) -> bool:
    """Whether the engine itself reports an error (generation 2 may leave `success` out)."""
    return envelope.get("success", True) is False or envelope.get("type") == "error"


def is_result(text: str) -> bool:
    """Whether a text is a run of tool results: one JSON array."""
    if not text.startswith("["):
        return False
    try:
        return isinstance(orjson.loads(text), list)
    except orjson.JSONDecodeError:
        return False


def check_texts(task: Task) -> None:
    """Refuse what C strings cannot hold: a NUL cuts the prompt silently, a lone surrogate has no UTF-8."""
    if not task.steps:
        raise Refusal("bad-text", "there is no text to feed")
    for text in (task.system, task.tools, *task.steps):
        if "\0" in text:
            raise Refusal("bad-text", "the text holds a NUL character")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Refusal("bad-text", f"the text holds a lone surrogate at character {error.start}") from error


def ordered_tools(tools: str) -> str:
    """The tools as compact JSON, each tool's keys in the order that the engine was trained on.

    The engine takes malformed tools without a word, and one whose description comes first can become invisible.
    """
    try:
        parsed = orjson.loads(tools)
    except orjson.JSONDecodeError as error:
        raise Refusal("engine-error", f"the tools are not JSON: {error}") from error
    if not isinstance(parsed, list) or not all(isinstance(tool, dict) and "name" in tool for tool in parsed):
        raise Refusal("engine-error", "the tools are not a list of objects with a name")
    return orjson.dumps([{key: tool[key] for key in TOOL_KEYS if key in tool} | tool for tool in parsed]).decode()


def as_envelope(answer: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """The engine's answer as an object; what is none is refused as garbage, not raised."""
    if not isinstance(answer, str):
        return answer
    try:
        parsed = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise Refusal("engine-garbage", f"{len(answer)} characters that are not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Refusal("engine-garbage", f"JSON, but a {type(parsed).__name__} instead of an object")
    return parsed
