"""A request as the policies see it, before anything has run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from needle_policies import Features
from needle_router.evidence.intents import wishes
from needle_router.markers import control_marker, unreadable
from needle_router.results import results_of
from needle_router.schema import CompiledTool
from needle_router.task import Task
from needle_router.translate import Catalogue
from needle_router.turn import Choice, Format, Turn

#: Wishes are counted in this much of the text; far longer ones are refused by their token count anyway.
COUNTED_CHARS = 4000


def features(turn: Turn, task: Task, catalogue: Catalogue, *, prompt_tokens: int, tokens_exact: bool) -> Features:
    """Features of `turn`; `turn.has_tools` is true for an extraction too, whose schema is its only tool."""
    extraction = (
        turn.response_format.kind is Format.JSON_SCHEMA
        and turn.tool_choice.mode is Choice.NAMED
        and (turn.tool_choice.names == (turn.response_format.name,))
    )
    talk = conversation(turn) if turn.has_tools else ""
    return Features(
        has_tools=turn.has_tools,
        tool_names=tuple(catalogue.tools),
        tool_choice=turn.tool_choice.mode.value,
        parallel=turn.parallel,
        extraction=extraction,
        json_object=turn.response_format.kind is Format.JSON_OBJECT,
        last_role=turn.messages[-1].role if turn.messages else "",
        user_chars=len(turn.user_text),
        prompt_tokens=prompt_tokens,
        tokens_exact=tokens_exact,
        clauses=wishes(turn.user_text[:COUNTED_CHARS]) if turn.has_tools else 1,
        stream=turn.stream,
        obstacles=tuple(dict.fromkeys((*turn.obstacles, *found_here(turn, task, catalogue)))),
        conversation=talk,
        turn=turn_name(turn, talk) if talk else "",
        tool_risks=risks(catalogue),
        results=results_of(turn),
    )


def risks(catalogue: Catalogue) -> tuple[str, ...]:
    """What each tool declares of its risk, () when none declares anything."""
    found = tuple(declared_risk(tool) for tool in catalogue.tools.values())
    return found if any(found) else ()


def declared_risk(tool: CompiledTool) -> str:
    """read, write or never by `x-needle-risk` and `x-needle-local` beside the parameters; "" without either."""
    if tool.original.get("x-needle-local") == "never":
        return "never"
    marked = tool.original.get("x-needle-risk")
    if marked is None:
        return ""
    # Whoever marks a tool means to warn of it: a word that is not known must not make it harmless.
    return marked if marked in ("read", "never") else "write"


def found_here(turn: Turn, task: Task, catalogue: Catalogue) -> tuple[str, ...]:
    """Obstacles that show only in translation, in the order in which they are reported."""
    if not turn.has_tools:
        return ()
    found = []
    texts = (task.system, *task.steps)
    if any(unreadable(text) for text in texts):
        found.append("bad-text")
    if catalogue.marker or any(control_marker(text) for text in texts):
        found.append("control-marker")
    if catalogue.problem:
        found.append("schema-unsupported")
    return tuple(found)


def conversation(turn: Turn) -> str:
    """A stable name of the conversation: the same for every turn that continues it, 16 hex digits."""
    first = next((message.text for message in turn.messages if message.role == "user"), "")
    return _name((*turn.system_texts, first))


def turn_name(turn: Turn, talk: str) -> str:
    """A stable name of this turn of the conversation `talk`: the same when the request is repeated, 16 hex digits."""
    return _name((talk, str(len(turn.messages)), turn.user_text))


def _name(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
