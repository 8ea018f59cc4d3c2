"""Text folded for comparison: words, numbers, quantities; "Twenty-five min" and 25 minutes are the same thing.

Everything here errs towards "not found": a value that cannot be found in the request sends it to the upstream.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

UNITS_BELOW_TWENTY = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen""".split()
TENS = """twenty thirty forty fifty sixty seventy eighty ninety""".split()
SMALL = {word: number for number, word in enumerate(UNITS_BELOW_TWENTY)} | {
    word: 20 + 10 * number for number, word in enumerate(TENS)
}
SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
ARTICLES = frozenset("""a an the of to in on at for my your our""".split())

_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+", re.UNICODE)
_POSSESSIVE = re.compile(r"['\u2019]s\b", re.IGNORECASE)
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b", re.IGNORECASE)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")

#: Seconds in each unit of time; the other families likewise in their first unit.
FAMILIES: tuple[dict[str, Fraction], ...] = (
    {
        name: Fraction(seconds).limit_denominator(1000)
        for names, seconds in (
            ("millisecond milliseconds ms", 0.001),
            ("second seconds sec secs s", 1),
            ("minute minutes min mins", 60),
            ("hour hours hr hrs h", 3600),
            ("day days", 86400),
            ("week weeks", 604800),
        )
        for name in names.split()
    },
    {
        name: Fraction(millimetres)
        for names, millimetres in (
            ("mm millimeter millimeters millimetre millimetres", 1),
            ("cm centimeter centimeters centimetre centimetres", 10),
            ("m meter meters metre metres", 1000),
            ("km kilometer kilometers kilometre kilometres", 1_000_000),
        )
        for name in names.split()
    },
    {
        name: Fraction(grams)
        for names, grams in (("g gram grams", 1), ("kg kilo kilos kilogram kilograms", 1000))
        for name in names.split()
    },
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and the unit word beside it, "" where there is none."""

    number: Fraction
    unit: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One text, read: its folded words, and its numbers with their units."""

    words: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    percent: bool


def fold(text: str) -> str:
    """Case, width, accents and possessive endings removed."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return _ORDINAL.sub("", _POSSESSIVE.sub("", plain))


@functools.lru_cache(maxsize=512)
def read(text: str) -> Reading:
    """Read a text; cached, since a request's text is looked at by several verifiers."""
    folded = _GROUPED.sub(lambda match: match[0].replace(",", ""), fold(text))
    words = _numbers_joined(_WORD.findall(folded))
    return Reading(words, _quantities(words), "%" in folded or "percent" in words)


def _numbers_joined(words: Sequence[str]) -> tuple[str, ...]:
    """Runs of number words as one numeral: twenty five -> 25, two hundred and ten -> 210."""
    joined: list[str] = []
    index = 0
    while index < len(words):
        end, number = _number_run(words, index)
        if end > index:
            joined.append(str(number))
            index = end
        else:
            joined.append(words[index])
            index += 1
    return tuple(joined)


def _number_run(words: Sequence[str], start: int) -> tuple[int, int]:
    """Where the number words that begin at `start` end, and what they amount to."""
    total = current = 0
    end = start
    for position in range(start, len(words)):
        word = words[position]
        following = words[position + 1] if position + 1 < len(words) else ""
        if word in SMALL and (current % 100 == 0 or (current % 10 == 0 and current % 100 >= 20 and SMALL[word] < 10)):
            current += SMALL[word]
        elif word in SCALES and end > start and current < 1_000_000_000:
            current = max(current, 1) * SCALES[word]
            if SCALES[word] > 100:
                total, current = total + current, 0
        elif word == "and" and end > start and words[position - 1] in SCALES and following in SMALL:
            continue
        else:
            break
        end = position + 1
    return end, total + current


def number(word: str) -> Fraction | None:
    """A numeral's value; a single comma reads as a decimal comma."""
    try:
        return Fraction(word.replace(",", ".")) if word[:1].isdigit() and ":" not in word else None
    except (ValueError, ZeroDivisionError):
        return None


def family_of(unit: str) -> dict[str, Fraction] | None:
    """The family of units that a word belongs to."""
    return next((family for family in FAMILIES if unit in family), None)


def _quantities(words: Sequence[str]) -> tuple[Quantity, ...]:
    found = []
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        value = number(word)
        if value is not None:
            half = words[index + 1 : index + 4] == ("and", "a", "half")
            unit = words[index + 4] if half and index + 4 < len(words) else following
            found.append(Quantity(value + Fraction(1, 2) if half else value, unit if family_of(unit) else ""))
        elif word in ("a", "an") and family_of(following):
            found.append(_one_or_half(words, index, following))
        elif word == "dozen":
            found.append(Quantity(Fraction(12), ""))
    return tuple(found)


def _one_or_half(words: Sequence[str], index: int, unit: str) -> Quantity:
    before = words[index - 1] if index else ""
    share = {"half": Fraction(1, 2), "quarter": Fraction(1, 4)}.get(before, Fraction(1))
    return Quantity(share, unit)


def singular(word: str) -> str:
    """A plural ending removed, crudely and on both sides of every comparison."""
    if len(word) > 4 and word.endswith("es") and word[-3] in "sxzh":
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def contains(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether `wanted` stands in `words` as a run, articles aside and plural like singular."""
    hay = [singular(word) for word in words if word not in ARTICLES]
    needle = [singular(word) for word in wanted if word not in ARTICLES]
    if not needle:
        return contains_exactly(words, wanted)
    return any(hay[i : i + len(needle)] == needle for i in range(len(hay) - len(needle) + 1))


def contains_exactly(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether `wanted` stands in `words` as a run, word by word; never for nothing."""
    size = len(wanted)
    return size > 0 and any(tuple(words[i : i + size]) == tuple(wanted) for i in range(len(words) - size + 1))
