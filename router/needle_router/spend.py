"""What the upstream has cost today and this month: running sums, begun from the ledger, read by budget policies."""

from __future__ import annotations

import datetime
import functools
import logging
import threading
import time
from collections.abc import Callable
from decimal import Decimal

from needle_router.ledger.place import Place
from needle_router.ledger.reading import costs
from needle_router.ledger.store import LedgerError

logger = logging.getLogger("needle_router.spend")
DAYS_KEPT = 31
#: Days begin on whole quarters of an hour, in every time zone there is.
SLOT_S = 900
QUARTER_S = 900


def local_now() -> datetime.datetime:
    """The time here, with its zone: a day ends at midnight of the machine's own zone."""
    now_s = time.time()
    return datetime.datetime.fromtimestamp(now_s, _zone(now_s // QUARTER_S))


@functools.lru_cache(maxsize=2)
def _zone(quarter: float) -> datetime.tzinfo | None:
    # Asking the system takes longer than all the rest of a decision's clock. Zones change at quarters of an hour.
    return datetime.datetime.fromtimestamp(quarter * QUARTER_S).astimezone().tzinfo


class Spend:
    """USD per day of the current month; safe to use from several threads.

    Unknown (None) while `start` reads the ledger. Requests without a known price count for nothing.
    """

    def __init__(self, *, now: Callable[[], datetime.datetime] = local_now) -> None:
        self._now = now
        self._began_s = now().timestamp()
        self._lock = threading.Lock()
        self._days: dict[datetime.date, Decimal] = {}
        self._slot = (-1.0, datetime.date.min)
        self._reading: threading.Thread | None = None

    def start(self, ledger: Place | None) -> None:
        """Read once what was spent earlier this month, in a thread of its own; None: nothing is known of earlier."""
        if ledger is None or self._reading is not None:
            return
        self._reading = threading.Thread(target=self.load, args=(ledger,), name="spend", daemon=True)
        self._reading.start()

    def load(self, ledger: Place) -> None:
        """Add what the ledger holds of this month from before this object was made."""
        try:
            for time_s, usd in costs(ledger, since_s=month_start(self._now()).timestamp(), before_s=self._began_s):
                self.add(time_s, usd)
        except LedgerError as error:
            logger.warning("the ledger cannot be read, so spend is counted from now on: %s", error)

    def adopt(self, other: Spend) -> None:
        """Count on together with `other`, whose router is being replaced and still has requests running."""
        self._days, self._lock, self._reading = other._days, other._lock, other._reading

    def add(self, time_s: float, usd: float | None) -> None:
        """Count `usd` spent at `time_s` (Unix seconds)."""
        if not usd:
            return
        day = self._day_of(time_s)
        with self._lock:
            self._days[day] = self._days.get(day, Decimal(0)) + Decimal(str(usd))
            while len(self._days) > DAYS_KEPT:
                del self._days[min(self._days)]

    def _day_of(self, time_s: float) -> datetime.date:
        """The day of a moment here; most moments follow one of the same quarter of an hour."""
        slot, day = self._slot
        if slot != time_s // SLOT_S:
            day = datetime.datetime.fromtimestamp(time_s, self._now().tzinfo).date()
            self._slot = time_s // SLOT_S, day
        return day

    def now(self) -> tuple[float | None, float | None]:
        """USD of today and of this month."""
        if self._reading is not None and self._reading.is_alive():
            return None, None
        today = self._now().date()
        with self._lock:
            month = [usd for day, usd in self._days.items() if (day.year, day.month) == (today.year, today.month)]
            return float(self._days.get(today, Decimal(0))), float(sum(month, Decimal(0)))

    def join(self, timeout_s: float) -> None:
        """Wait until the ledger has been read, at most `timeout_s` seconds."""
        if self._reading is not None:
            self._reading.join(timeout_s)


def month_start(moment: datetime.datetime) -> datetime.datetime:
    """The first moment of its month."""
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
