"""The port behind the writer: what a place that keeps records can do, and what may go wrong there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from needle_router.ledger.rows import Row

#: As a number of records: none is left out, for no ledger has so many.
ALL = 2**62


class LedgerError(OSError):
    """The ledger cannot be used; the records at hand are lost.

    The message is for the log and never holds a password; `shown` is for the status page, which anybody may ask for.
    """

    def __init__(self, message: str, *, shown: str = "") -> None:
        super().__init__(message)
        self.shown = shown or message


class LedgerAway(LedgerError):
    """Nothing was written, and the same records can be tried again later."""


class BadRecord(LedgerError):
    """A record of the batch cannot be stored, whatever the state of the ledger."""


class NewerSchema(LedgerError):
    """A later release wrote it; it is left as it is."""

    def __init__(self, found: int, known: int) -> None:
        newer = f"it has schema version {found}, and this router knows no newer one than {known}"
        super().__init__(f"{newer}: install the newer router, or set ledger.path to another place")


class ForeignLedger(LedgerError):
    """Somebody else's database; it is left as it is."""

    def __init__(self, what: str) -> None:
        super().__init__(f"it is a database of something else ({what}): set ledger.path to another place")


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ledger holds. Times are Unix seconds, None when it is empty."""

    schema: int
    records: int
    oldest_s: float | None
    newest_s: float | None
    size_bytes: int


class Reading(Protocol):
    """A ledger that is open for reading; what it gives is in the order of writing."""

    def records(self, since_s: float, newest: int = ALL) -> Iterator[tuple[str | None, str]]:
        """Instance and record (JSON) of those since `since_s` (Unix seconds), and of those the `newest` written."""
        ...

    def costs(self, since_s: float, before_s: float) -> Iterator[tuple[float, float]]:
        """Time and USD of the requests that cost something."""
        ...

    def summary(self) -> Summary:
        """What is in it."""
        ...


class Store(Protocol):
    """One place that keeps records, used by one thread at a time. All methods but `close` may raise `LedgerError`."""

    def open(self) -> None:
        """Get ready to write, and bring the schema up to date; nothing when that is done already."""
        ...

    def write(self, rows: Sequence[Row]) -> None:
        """Keep all of `rows` (see `rows.NAMES`), or none: one transaction."""
        ...

    def prune(self, before_s: float) -> int:
        """Remove what is older than `before_s` (Unix seconds); how many records that were."""
        ...

    def close(self) -> None:
        """Let go of the place; `open` may follow."""
        ...

    def reading(self) -> AbstractContextManager[Reading]:
        """A connection of its own, read-only, for whoever reads."""
        ...
