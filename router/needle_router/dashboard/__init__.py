"""The ledger's part of the dashboard, made by a process of its own and kept for a while.

Reading a ledger keeps a processor busy for a second and more. A thread would share the interpreter with the event loop:
where processors are scarce, one that is put aside in the middle of its turn stops every request. So it is a process,
with a low claim on the processor, one at a time, with a deadline; and what it found is kept for ten times as long as it
took.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

import needle_router
from needle_router.ledger import Database, Place
from needle_router.report.page import notice

FRESH_S = 5.0
FRESH_PER_COST = 10.0
DEADLINE_S = 30.0
#: `-P`: nothing is imported from the working directory. The package's root goes last, where it shadows nothing.
LAUNCH = "import sys; sys.path.append(sys.argv[1]); from needle_router.dashboard.child import main; main()"
SOURCE_ROOT = str(Path(needle_router.__file__).resolve().parent.parent)
COMMAND = (sys.executable, "-P", "-c", LAUNCH, SOURCE_ROOT)

OFF = "The ledger is off (ledger.path), so nothing is known of earlier days."
NOTHING = "Nothing is recorded yet."
NOT_YET = "The ledger is being read. Load the page again in a while."
TOO_LONG = f"The ledger could not be read within {DEADLINE_S:g} s: the machine is busy. Load the page again in a while."
FAILED = "The ledger could not be read: the process that reads it failed (the log says more)."
logger = logging.getLogger("needle_router.dashboard")


class Dashboard:
    """The markup of the last `days` days of a ledger; `ledger` None means that there is none.

    `certificates` are the paths of the files in force.
    """

    def __init__(
        self,
        ledger: Place | None,
        *,
        days: float,
        penalty_usd: float,
        certificates: Sequence[str] = (),
        now: Callable[[], float] = time.time,
        deadline_s: float = DEADLINE_S,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.ledger = ledger
        self.days = days
        self.penalty_usd = penalty_usd
        self.certificates = tuple(certificates)
        self._now = now
        self._deadline_s = deadline_s
        self._command = tuple(command)
        self._made = ""
        self._fresh_until_s = 0.0
        # Not a lock of the event loop: an app may run several.
        self._busy = threading.Lock()

    async def markup(self) -> str:
        """The newest there is; made anew when it is old and nobody else is at it."""
        if self.ledger is None:
            return notice(OFF)
        if not self.ledger.exists():
            return notice(NOTHING)
        if time.monotonic() < self._fresh_until_s or not self._busy.acquire(blocking=False):
            return self._made or notice(NOT_YET)
        began_s = time.monotonic()
        try:
            self._made = await self._read(self.ledger)
        finally:
            ended_s = time.monotonic()
            self._fresh_until_s = ended_s + max(FRESH_S, FRESH_PER_COST * (ended_s - began_s))
            self._busy.release()
        return self._made

    async def _read(self, ledger: Place) -> str:
        """What the process says; it is killed at the deadline, and when the request is cancelled."""
        order = {
            # Through its input: others can read a process's arguments, and a URL may hold a password.
            "ledger": ledger.url if isinstance(ledger, Database) else str(ledger),
            "until_s": self._now(),
            "days": self.days,
            "penalty_usd": self.penalty_usd,
            "certificates": self.certificates,
        }
        with anyio.move_on_after(self._deadline_s):
            done = await anyio.run_process(self._command, input=json.dumps(order).encode(), stderr=None, check=False)
            if done.returncode == 0:
                return done.stdout.decode()
            logger.warning("the process that reads the ledger for the dashboard ended with code %s", done.returncode)
            return notice(FAILED)
        return self._made or notice(TOO_LONG)
