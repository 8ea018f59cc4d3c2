"""The verifiers, in the order in which they are asked: each one small, pure and with a reason slug of its own.

A score is not a safe gate alone (wrong calls were seen at 0.995 beside right ones at 0.8), so these come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from needle_router.evidence import grounding, intents, language, words
from needle_router.history import results_since_the_user, since_the_user
from needle_router.task import Envelope
from needle_router.translate import Catalogue
from needle_router.turn import Call, Choice, Turn

#: Words of tool names that fit any wish.
GENERIC = intents.FILLER | frozenset(
    """get set do make run call use take put fetch list show find search check look read write new all add item tool
    function data info""".split()
)


@dataclass(frozen=True, slots=True)
class Case:
    """What a verifier looks at: the request, the engine's envelope, and the calls after lossless repair."""

    turn: Turn
    envelope: Envelope
    catalogue: Catalogue
    calls: tuple[Call, ...]
    facts: str

    @property
    def known_calls(self) -> tuple[Call, ...]:
        """The calls whose tool may be called."""
        return tuple(call for call in self.calls if call.name in self.catalogue.tools)


@dataclass(frozen=True, slots=True)
class Verifier:
    """One check: `fails` is true when there is something against answering locally."""

    slug: str
    fails: Callable[[Case], bool]


def no_call(case: Case) -> bool:
    """The engine made no call; a withheld one is none."""
    return not case.calls


def negated(case: Case) -> bool:
    """The engine or the wording says not to."""
    return case.envelope.negation or language.negated(case.turn.user_text)


def flagged_ungrounded(case: Case) -> bool:
    """The engine's own grounding check found something."""
    return bool(case.envelope.ungrounded)


def unknown_tool(case: Case) -> bool:
    """A name that was not offered, or not the pinned one."""
    return len(case.known_calls) < len(case.calls)


def invalid_arguments(case: Case) -> bool:
    """Arguments that break the client's own schema."""
    return any(case.catalogue.tools[call.name].validate(call.arguments) for call in case.known_calls)


def ungrounded(case: Case) -> bool:
    """An argument that stands nowhere in the request or the facts."""
    results = results_since_the_user(case.turn)
    # What the engine itself checked against may be a result that somebody else wrote.
    judged = case.envelope.ungrounded is not None and not results
    sources = grounding.Sources(case.turn.user_text, case.facts, judged, results)
    given = [raw.arguments for raw in case.envelope.calls]
    return any(
        grounding.ungrounded(call, written, case.catalogue.tools[call.name], sources)
        for call, written in zip(case.calls, given, strict=True)
        if call.name in case.catalogue.tools
    )


def unasked(case: Case) -> bool:
    """A call after tool results whose tool the user's own words do not name: the wish may be the result's."""
    if not results_since_the_user(case.turn):
        return False
    said = {words.singular(word) for word in words.read(case.turn.user_text).words}
    return any(not said & _telling(call.name) for call in case.calls)


def _telling(name: str) -> set[str]:
    """The words of a tool's name that say what it is about."""
    return {words.singular(word) for word in language.name_words(name) if word not in GENERIC}


def _acts(case: Case) -> bool:
    tools = case.catalogue.tools
    return any(language.acts(call.name, tools[call.name].description) for call in case.known_calls)


def state_question(case: Case) -> bool:
    """A question that would be answered by changing something; a pinned or required tool is the client's will."""
    return case.turn.tool_choice.mode is Choice.AUTO and language.asks(case.turn.user_text) and _acts(case)


def conditional(case: Case) -> bool:
    """A change that the user wants only if or when something holds."""
    return language.conditional(case.turn.user_text) and _acts(case)


def parallel_forbidden(case: Case) -> bool:
    """Several calls although the client allows one."""
    return len(case.calls) > 1 and not case.turn.parallel


def repeated_call(case: Case) -> bool:
    """A call made before in this conversation, or twice in this answer: an agent would go round in circles."""
    keys = [_key(call.name, call.arguments) for call in case.calls]
    if len(set(keys)) < len(keys):
        return True
    past = {_past_key(call.name, call.arguments) for message in case.turn.messages for call in message.calls}
    return any(key in past for key in keys) or any(_told(call, case.turn) for call in case.calls)


def _key(name: str, arguments: Any) -> bytes:
    try:
        return name.encode("utf-8", "surrogatepass") + orjson.dumps(_plain(arguments), option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError, RecursionError):
        return repr((name, arguments)).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    """Numbers and texts in one spelling: 30.0 is 30, outer space and case do not count."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip().casefold() if isinstance(value, str) else value


def _past_key(name: str, text: str) -> bytes:
    try:
        return _key(name, orjson.loads(text or "{}"))
    except (orjson.JSONDecodeError, ValueError):
        return b""


def _told(call: Call, turn: Turn) -> bool:
    """The call stands in an assistant's plain text: some agents write their history as words."""
    leaves = [str(value) for value in call.arguments.values() if isinstance(value, (str, int, float))]
    return any(
        message.role == "assistant" and call.name in message.text and all(leaf in message.text for leaf in leaves)
        for message in turn.messages
    )


def stop_string(case: Case) -> bool:
    """A stop string would have cut this answer."""
    if not case.turn.stop:
        return False
    texts = [str(value) for call in case.calls for value in call.arguments.values()]
    return any(stop in text for stop in case.turn.stop for text in texts)


def max_tokens(case: Case) -> bool:
    """The call is longer than the client allows; three characters a token errs towards longer."""
    limit = case.turn.max_tokens
    if limit is None:
        return False
    characters = sum(len(call.name) + len(str(dict(call.arguments))) for call in case.calls)
    return characters / 3 > limit


def intents_uncovered(case: Case) -> bool:
    """A wish of the request has no call."""
    # In an agent's loop, the calls made since the user spoke have served their wishes.
    made = (*_made_since_the_user(case.turn), *case.known_calls)
    values = [text for call in made for text in _value_texts(call.arguments)]
    names = [name for call in made for name in (call.name, *call.arguments)]
    return intents.uncovered(case.turn.user_text, values, names, len(made) - len(case.known_calls) + len(case.calls))


def _made_since_the_user(turn: Turn) -> Iterator[Call]:
    for past in (call for message in since_the_user(turn) for call in message.calls):
        try:
            arguments = orjson.loads(past.arguments or "{}")
        except orjson.JSONDecodeError:
            arguments = None
        yield Call(past.name, arguments if isinstance(arguments, dict) else {})


def _value_texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _value_texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _value_texts(item)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


#: Most decisive first. `intents-uncovered` is last: it is the one failure that merging with the upstream can mend.
VERIFIERS: tuple[Verifier, ...] = (
    Verifier("no-call", no_call),
    Verifier("negated", negated),
    Verifier("ungrounded", flagged_ungrounded),
    Verifier("unknown-tool", unknown_tool),
    Verifier("invalid-arguments", invalid_arguments),
    Verifier("ungrounded", ungrounded),
    Verifier("state-question", state_question),
    Verifier("conditional", conditional),
    Verifier("parallel-forbidden", parallel_forbidden),
    Verifier("repeated-call", repeated_call),
    Verifier("unasked", unasked),
    Verifier("stop-string", stop_string),
    Verifier("max-tokens", max_tokens),
    Verifier("intents-uncovered", intents_uncovered),
)
