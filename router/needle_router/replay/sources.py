"""What can be replayed: data sets by name, and everything else is a file."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from needle_router.replay.bfcl import bfcl
from needle_router.replay.cases import Case, SourceProblem, case_of
from needle_router.replay.environments import environments
from needle_router.replay.files import BadRequests, read_requests
from needle_router.replay.home import SENTENCES, home


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set: what it is, and its cases for a seed where sentences are drawn."""

    about: str
    read: Callable[[int], Iterable[Case]]


DATA_SETS: Mapping[str, DataSet] = {
    "bfcl": DataSet("BFCL v4, single turns (package bfcl-eval)", lambda seed: bfcl()),
    "needle-environments": DataSet(
        "the 192 frozen cases of needle.environments (package cactus-needle)",
        lambda seed: map(case_of, environments()),
    ),
    "home-assistant-intents": DataSet(
        f"{SENTENCES} sentences about lights, climate and timers (package home-assistant-intents)",
        lambda seed: map(case_of, home(SENTENCES, seed)),
    ),
}
#: Other names by which people know them.
ALIASES: Mapping[str, str] = {
    "bfcl-eval": "bfcl",
    "needle.environments": "needle-environments",
    "environments": "needle-environments",
    "home-assistant": "home-assistant-intents",
}
SQLITE = b"SQLite format 3\0"
NO_LEDGER = (
    "a ledger cannot be replayed, because it keeps no tools, and texts only with ledger.content, cut and redacted; "
    "record whole request bodies, one a line"
)


def data_set(source: str) -> str | None:
    """The data set of that name; None for anything else, which is then a file."""
    name = ALIASES.get(source, source)
    return name if name in DATA_SETS else None


def read_source(source: str, seed: int) -> list[Case]:
    """The cases of a data set or a file of JSON lines. Raises SourceProblem."""
    if (name := data_set(source)) is not None:
        return list(DATA_SETS[name].read(seed))
    try:
        with Path(source).expanduser().open("rb") as lines:
            if lines.peek(len(SQLITE)).startswith(SQLITE):
                raise SourceProblem(f"{source} is a database: {NO_LEDGER}")
            return read_requests(lines)
    except BadRequests as bad:
        title = f"{source} has lines that cannot be replayed:"
        raise SourceProblem(title, *(f"  {line}" for line in bad.lines)) from None
    except OSError as error:
        raise SourceProblem(*_missing(source, error)) from None


def _missing(source: str, error: OSError) -> Iterable[str]:
    yield f"{source} cannot be read: {error.strerror or os.strerror(error.errno or 0)}"
    # Without a suffix it was rather meant as a name.
    if not Path(source).suffix:
        yield "data sets by name:"
        yield from (f"  {name}: {found.about}" for name, found in DATA_SETS.items())


def chosen(cases: Sequence[Case], categories: Sequence[str], limit: int | None, seed: int) -> list[Case]:
    """The cases of these categories (all without any), at most `limit`, drawn uniformly; in their order."""
    known = sorted({case.category for case in cases})
    if unknown := [name for name in categories if name not in known]:
        raise SourceProblem(f"there is no category {', '.join(unknown)}; there are {', '.join(known)}")
    kept = [case for case in cases if not categories or case.category in categories]
    if limit is None or limit >= len(kept):
        return kept
    # A sample, not the first ones: those would all be of one category, and certify nothing.
    return [kept[index] for index in sorted(random.Random(seed).sample(range(len(kept)), limit))]
