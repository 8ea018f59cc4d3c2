"""The ledger's part of the dashboard, made beside the event loop and kept for a while.

Reading a ledger takes longer than a request should wait. It is done in a thread, one at a time; the thread rests after
every few records, so that the event loop gets its turn at once instead of after the interpreter's switch interval; and
what it made is kept for at least twenty times as long as it took, so that a browser that reloads costs a twentieth of
one processor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

import anyio
import anyio.to_thread

from needle_router.ledger import LedgerError, Place, read_ledger
from needle_router.records import DecisionRecord
from needle_router.report.page import content, notice
from needle_router.report.period import day_of
from needle_router.report.summary import summary
from needle_router.report.tally import Tally

FRESH_S = 5.0
FRESH_PER_COST = 20.0
PATIENCE_S = 10.0
#: More would keep a processor busy for longer than a page is worth.
MAX_RECORDS = 200_000
#: Records between two rests.
SLICE = 50
REST_S = 0.0005

OFF = "The ledger is off (ledger.path), so nothing is known of earlier days."
NOTHING = "Nothing is recorded yet."
NEWEST_ONLY = f"Only the newest {MAX_RECORDS:,} records are shown; needle-router report reads all of them."
NOT_YET = "The ledger is still being read. Load the page again in a while."


class Closing(Exception):
    """The router stops; nobody waits for the page any more."""


class Dashboard:
    """The markup of the last `days` days of a ledger; `ledger` None means that there is none."""

    def __init__(
        self,
        ledger: Place | None,
        *,
        days: float,
        penalty_usd: float,
        patience_s: float = PATIENCE_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.ledger = ledger
        self.days = days
        self.penalty_usd = penalty_usd
        self.patience_s = patience_s
        self._now = now
        self._made = ""
        self._fresh_until_s = 0.0
        self._busy = threading.Lock()
        self._closing = threading.Event()

    async def markup(self) -> str:
        """The newest there is; it is made anew when it is old and nobody else is at it, within `patience_s` seconds."""
        if self.ledger is None:
            return notice(OFF)
        if time.monotonic() >= self._fresh_until_s and not self._busy.locked():
            with anyio.move_on_after(self.patience_s):
                await anyio.to_thread.run_sync(self._renew, self.ledger, abandon_on_cancel=True)
        return self._made or notice(NOT_YET)

    def close(self) -> None:
        """Make a thread that reads stop soon."""
        self._closing.set()

    def _renew(self, ledger: Place) -> None:
        if not self._busy.acquire(blocking=False):
            return
        began_s = time.monotonic()
        try:
            self._made = self._read(ledger) if ledger.exists() else notice(NOTHING)
        except Closing:
            return
        except LedgerError as error:
            self._made = notice(f"The ledger cannot be read: {error.shown}")
        except ValueError as error:
            self._made = notice(f"The ledger cannot be read: {error}")
        finally:
            took_s = time.monotonic() - began_s
            self._fresh_until_s = time.monotonic() + max(FRESH_S, FRESH_PER_COST * took_s)
            self._busy.release()

    def _read(self, ledger: Place) -> str:
        until_s = self._now()
        tally = Tally(day_of=day_of, since_s=until_s - self.days * 86_400, until_s=until_s)
        tally.take(self._paced(read_ledger(ledger, since_s=tally.since_s, newest=MAX_RECORDS)))
        found = content(summary(tally, penalty_usd=self.penalty_usd))
        return notice(NEWEST_ONLY) + found if tally.taken >= MAX_RECORDS else found

    def _paced(self, records: Iterable[DecisionRecord]) -> Iterator[DecisionRecord]:
        for number, record in enumerate(records):
            if number % SLICE == 0:
                if self._closing.is_set():
                    raise Closing
                time.sleep(REST_S)
            yield record
