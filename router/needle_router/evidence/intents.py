"""How many wishes does a request hold, and does each have its call?

A small model likes to answer the first half of "dim the study and tell me a joke". The text is cut where people join
wishes; a piece counts as covered when it is filler or a remark, when its words stand in the arguments of a call, or,
for pieces that begin with a verb or a question, when there are as many calls as such pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from needle_router.evidence import language, words

_CUT = re.compile(
    r"(?<![.!?;])[.!?;]++(?=\s|$)|\n|,?\s+(?:and then|and also|then|and|plus|as well as|also|after that)\s+|[,&]\s+|\s+&\s+",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"^(?:please|can you|could you|would you(?: mind)?|will you|i want(?: you)? to|i need(?: you)? to|i['\u2019]d like(?: you)? to"
    r"|just|now|then|also|and|let['\u2019]?s|go ahead and|kindly|hey|ok|okay|so)\b[\s,]*",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"^(?:i(?:['\u2019]m| am| was| just|['\u2019]ve| have| feel| think| like| love| hate)?|it(?:['\u2019]s| is| was)?|there(?:['\u2019]s| is| are)"
    r"|if (?:you (?:can|could|will|would|please|do|don)|possible|so$)|because|since|this is|that(?:['\u2019]s| is)|we(?:['\u2019]re| are)?|you(?:['\u2019]re| are)|my)\b",
    re.IGNORECASE,
)
#: Openings whose "and" joins no second wish.
_PRELUDE = re.compile(
    r"\b(?:go ahead and|(?:be|would you be) (?:so kind|a dear|a darling) and|do me a favou?r and|try and)\b",
    re.IGNORECASE,
)
FILLER = frozenset(
    """no any with without hi hello hey please thanks thank you much very ok okay good morning evening afternoon night now just sir
    madam cheers yes yeah sure right well um uh so dear computer assistant there everyone immediately quickly
    asap again too listen look rush hurry problem worries a an the for me my it is in on to of at as soon possible""".split()
)
#: Verbs that ask for words or for something a tool may do, beside those that act.
_SPEAKING = frozenset(
    """tell say explain give show describe write sing read recite translate summarize summarise list find search
    look check get fetch compare recommend suggest help what whats how who when where why which is are does do
    will can hold calculate compute convert count define draw play spell repeat let wish greet teach bring""".split()
)
VERBS = language.ACTIONS | _SPEAKING


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a request: its words, and whether it begins like a wish of its own."""

    text: str
    words: tuple[str, ...]
    leads: bool


def pieces(text: str) -> tuple[Piece, ...]:
    """The parts of a request that may each be a wish; filler and remarks left out."""
    found = []
    for raw in _CUT.split(_single_spaced(text)):
        plain = _bare(raw)
        folded = words.read(plain).words
        if not folded or set(folded) <= FILLER or _REMARK.match(plain):
            continue
        found.append(Piece(plain, folded, folded[0] in VERBS))
    return tuple(found)


def _single_spaced(text: str) -> str:
    # Runs of blanks would make the cutting pattern quadratic: 20 KB of spaces kept it busy for 20 seconds.
    return _PRELUDE.sub("", "\n".join(" ".join(line.split()) for line in text.splitlines()))


def _bare(raw: str) -> str:
    plain = raw.strip(" \t\r\n,\"'")
    while True:
        shorter = _POLITE.sub("", plain, count=1)
        if shorter == plain:
            return plain
        plain = shorter


def wishes(text: str) -> int:
    """How many wishes the text seems to hold, at least 1."""
    return max(1, sum(piece.leads for piece in pieces(text)))


def uncovered(text: str, values: Sequence[str], names: Sequence[str], call_count: int) -> bool:
    """Whether some wish has no call.

    `values` are the argument values as text, `names` the names of the called tools and of their arguments.
    """
    parts = pieces(text)
    if len(parts) < 2:
        return False
    said = [words.read(value).words for value in values]
    named = {words.singular(word) for name in names for word in language.name_words(name)}
    leading = [part for part in parts if part.leads and not _quoted(part, said)]
    if len(leading) > call_count:
        return True
    return any(not _mentioned(part, said, named) for part in parts if not part.leads)


def _quoted(part: Piece, said: Sequence[Sequence[str]]) -> bool:
    """A piece that stands as a whole in an argument: the text of a message, an item with "and" in it."""
    return any(words.contains(value, part.words) for value in said)


def _mentioned(part: Piece, said: Sequence[Sequence[str]], named: set[str]) -> bool:
    # A bare quantity ("1 hour and 30 minutes") is no wish; whether it is the right one is a matter of grounding.
    counted = {word for word in part.words if words.number(word) is not None or words.family_of(word)}
    content = {words.singular(word) for word in part.words if word not in FILLER and word not in counted}
    values = {words.singular(word) for value in said for word in value}
    return not content or bool(content & values) or content <= named
