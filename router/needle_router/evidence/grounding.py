"""Does each argument stand in the request? The check that does most against a small model's inventions.

Free text must stand in the user's words or in the system facts as a run of words; a number must be one of the numbers
named, in the unit that the parameter wants ("25 minutes" is 1500 for `duration_seconds`, and 25 is not); a day must be
the day named. A member of an enum is not free text, but when the request names another member of the same enum and not
the chosen one, the choice is wrong. Prose (six words and more, or several lines) is composed rather than copied: there
the engine's own grounding verdict stands where it gave one, and every word must be found where it gave none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from needle_router.evidence import dates, words
from needle_router.schema import CompiledTool, leaves
from needle_router.turn import Call

PROSE_WORDS = 6
#: A value of nothing but these was cut out of the sentence's grammar: it names no room, person or song.
_GRAMMAR = frozenset(
    """a an the i me us we you it its they them he she him her this that these those there here to of at on in for from
    by with and or be is are was were been am do does did has have had feel keep let please""".split()
)
#: Facts that hold moments and counters; they ground dates, never plain numbers.
_MOMENT_FACT = re.compile(r"(?im)^(?:date|time|battery)\s*:.*$")
_UNIT_IN_DESCRIPTION = re.compile(r"\b(?:in|of)\s+(\w+)\b|\((\w+)\)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: Names of boolean parameters that say on or off in the request's own words.
SWITCHED_ON = frozenset(("on", "start", "enable", "activate", "begin", "resume", "open"))
SWITCHED_OFF = frozenset(
    ("off", "out", "stop", "disable", "deactivate", "end", "pause", "shut", "kill", "close", "cut")
)
_SWITCH = frozenset(("on", "power", "enabled", "active", "state"))


@dataclass(frozen=True, slots=True)
class Sources:
    """Where an argument may come from: the user's text and the facts; `judged` if the engine checked grounding too.

    `results` are the tool results that came since the user spoke: free text and numbers may be copied from them.
    """

    text: str
    facts: str
    judged: bool
    results: str = ""

    @property
    def reading(self) -> words.Reading:
        """The text and those facts that may ground words and numbers."""
        return words.read(f"{self.text}\n{_MOMENT_FACT.sub('', self.facts)}")


def ungrounded(call: Call, given: Mapping[str, Any], tool: CompiledTool, sources: Sources) -> str | None:
    """The path of the first argument that stands nowhere, or None. `given` is what the engine wrote, before repair."""
    for path, value, schema in leaves(call.arguments, tool.original, tool.original):
        top = re.split(r"[.\[]", path, maxsplit=1)[0]
        filled_by_us = top not in given
        if filled_by_us or grounded(path, value, schema, sources) or copied(value, schema, sources.results):
            continue
        return f"{call.name}.{path}"
    return None


def grounded(path: str, value: Any, schema: Mapping[str, Any], sources: Sources) -> bool:
    """Whether one scalar argument stands in the sources."""
    if value is None or ("default" in schema and schema["default"] == value):
        return True
    if isinstance(value, bool):
        return _switch_fits(path, value, sources)
    if isinstance(value, (int, float)):
        return _number_stands(path, value, schema, sources)
    if not isinstance(value, str):
        return False
    members = schema.get("enum")
    if isinstance(members, list):
        return _member_fits(value, members, sources)
    return _text_stands(value, sources)


def copied(value: Any, schema: Mapping[str, Any], results: str) -> bool:
    """Whether a free text or a number stands in the tool results as it is.

    A choice (a member of an enum, yes or no) is the user's to make, whatever a result says.
    """
    if not results or isinstance(value, bool) or isinstance(schema.get("enum"), list):
        return False
    said = words.read(results)
    if isinstance(value, (int, float)):
        return str(value) not in ("nan", "inf", "-inf") and Fraction(str(value)) in {q.number for q in said.quantities}
    if not isinstance(value, str):
        return False
    wanted = words.read(value).words
    return not _GRAMMAR.issuperset(wanted) and words.contains_exactly(said.words, wanted)


def _switch_fits(path: str, value: bool, sources: Sources) -> bool:
    if _name_words(path)[-1:] == [] or _name_words(path)[-1] not in _SWITCH:
        return True
    said = frozenset(words.read(sources.text).words)
    wanted, other = (SWITCHED_ON, SWITCHED_OFF) if value else (SWITCHED_OFF, SWITCHED_ON)
    return bool(said & wanted) or not said & other


def _member_fits(value: str, members: list[Any], sources: Sources) -> bool:
    said = sources.reading.words
    if len(members) == 1 or words.contains(said, words.read(value).words):
        return True
    return not any(isinstance(m, str) and words.contains(said, words.read(m).words) for m in members if m != value)


def _text_stands(value: str, sources: Sources) -> bool:
    moment = dates.grounded_moment(value.strip(), sources.text, sources.facts)
    if moment is not None:
        return moment or value.strip() in sources.text
    wanted = words.read(value).words
    if not wanted:
        # Signs without letters or digits: found as they are, or not at all.
        return bool(value.strip()) and value.strip() in sources.text
    said = sources.reading.words
    if _GRAMMAR.issuperset(wanted):
        return len(value.strip()) == 1 and _is_label(wanted[0], said)
    if words.contains(said, wanted):
        return True
    prose = len(wanted) >= PROSE_WORDS or "\n" in value.strip()
    return prose and sources.judged


def _is_label(letter: str, said: Sequence[str]) -> bool:
    """Whether a letter stands as a name ("option a", "tags a b and c") rather than as an article before a noun."""
    for index, word in enumerate(said):
        following = said[index + 1] if index + 1 < len(said) else ""
        if word == letter and (len(following) <= 1 or following in ("and", "or")):
            return True
    return False


def _number_stands(path: str, value: float, schema: Mapping[str, Any], sources: Sources) -> bool:
    try:
        wanted = Fraction(str(value))
    except (ValueError, OverflowError):
        return False
    reading = sources.reading
    unit = _wanted_unit(path, schema)
    family = words.family_of(unit) if unit else None
    if family is not None:
        measured = [q for q in reading.quantities if q.unit in family]
        if measured:
            amounts = [q.number * family[q.unit] for q in measured]
            return wanted * family[unit] in (*amounts, sum(amounts, Fraction(0)))
    numbers = {q.number for q in reading.quantities}
    return wanted in numbers or (reading.percent and wanted * 100 in numbers) or _hour(wanted, sources)


def _hour(wanted: Fraction, sources: Sources) -> bool:
    """An hour of the day named with am or pm, or before a colon."""
    return any(wanted == hour for hour, _ in dates.times_in(sources.text))


def _wanted_unit(path: str, schema: Mapping[str, Any]) -> str:
    for name in reversed(_name_words(path)):
        if len(name) > 1 and words.family_of(name):
            return name
    description = schema.get("description")
    if isinstance(description, str):
        for one, two in _UNIT_IN_DESCRIPTION.findall(description.casefold()):
            unit = one or two
            if len(unit) > 1 and words.family_of(unit):
                return str(unit)
    return ""


def _name_words(path: str) -> list[str]:
    last = path.rpartition(".")[2]
    return [word for word in re.split(r"[\W_]+", _CAMEL.sub("_", last).casefold()) if word]
