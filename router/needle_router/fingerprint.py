"""What a certified threshold is bound to: the tools' schemas, the system prompt, the engine and its session mode.

The fingerprint must change when any of the four does, and must not change by itself, or a certificate would be void
each midnight. So what a prompt says of the moment is folded away: facts (`date: 2026-11-30`) to their keys, and dates,
clock times and names of days and months anywhere to one mark. Everything else in it counts, letter by letter: it tells
which application asks, and it steers the upstream whose calls were the yardstick.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from typing import Literal

from needle_router.translate import FACT, MAX_FACT_CHARS, MAX_KEY_CHARS, Catalogue

#: What of the system prompt counts (`ledger.fingerprint`).
Reach = Literal["prompt", "engine"]
#: An agent sends the same prompt with each turn; longer ones are not kept in memory.
MAX_REMEMBERED_CHARS = 8192
_DAY = r"(?:Mon|Tue(?:s)?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)"
)
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?(?:\s?(?:Z|UTC|GMT))?(?:[+-]\d\d:?\d\d)?"
_MOMENT = re.compile(
    # What may begin one stands first: prompts are long, and most words are none.
    r"\b(?=[\dADFJMNOSTW])(?:"
    rf"\d{{4}}-\d\d-\d\d(?:T{_CLOCK})?"
    r"|\d{1,2}/\d{1,2}/(?:\d{4}|\d\d)|\d{1,2}\.\d{1,2}\.\d{4}"
    rf"|(?:\d{{1,2}}(?:st|nd|rd|th)?\.?\s)?{_MONTH}\b\.?(?:\s\d{{1,2}}(?:st|nd|rd|th)?\b)?(?:,?\s\d{{4}})?"
    rf"|{_DAY}\b\.?"
    rf"|{_CLOCK}"
    r"|1\d{9}(?:\d{3})?)(?!\w)"
)
_PIECES = re.compile(r"([\n;])")
_MARK = "\x1a"
_MARKS = re.compile(rf"{_MARK}(?:[\s,]*{_MARK})*")


def fingerprint(
    catalogue: Catalogue,
    *,
    prompt: Sequence[str],
    facts: str,
    system: Literal["facts", "verbatim", "none"],
    reach: Reach,
    engine: str,
    session: str,
) -> str:
    """16 hex digits.

    `prompt` are the client's system and developer texts, `facts` the text that the engine reads of them in the mode
    `system`; `reach` says which of the two counts. `engine` names the engine and its files, `session` its mode.
    """
    read = "\n".join(prompt) if reach == "prompt" else facts
    parts = (catalogue.digest, folded(read), system, engine, session)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def folded(text: str) -> str:
    """`text` without what it says of the moment; quick when the same text was seen before."""
    return (_remembered if len(text) <= MAX_REMEMBERED_CHARS else _folded)(text)


def _folded(text: str) -> str:
    pieces = "".join(map(_without_value, _PIECES.split(text)))
    # "Monday, 30 November 2026, 9:15" is as long as its parts; one mark stands for all of it.
    return _MARKS.sub(_MARK, _MOMENT.sub(_MARK, pieces))


_remembered = functools.lru_cache(maxsize=256)(_folded)


def _without_value(piece: str) -> str:
    """A fact as its key; anything else as it is."""
    # Length first: the pattern is slow on long runs of blanks, and longer ones are no facts to the engine either.
    fact = FACT.match(piece) if len(piece) <= MAX_FACT_CHARS + MAX_KEY_CHARS else None
    return f"{fact[1].lower()}:" if fact else piece
