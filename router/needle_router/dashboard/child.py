"""What runs in the process that reads the ledger: an order on standard input, markup on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from needle_router.config.certificates import content_of
from needle_router.ledger import LedgerError, place_of, read_ledger
from needle_router.report.page import content, notice
from needle_router.report.period import day_of
from needle_router.report.summary import summary
from needle_router.report.tally import Tally

#: Requests come first, wherever processors are scarce.
NICENESS = 15
#: More would keep a processor busy for longer than a page is worth.
MAX_RECORDS = 200_000
NEWEST_ONLY = f"Only the newest {MAX_RECORDS:,} records are shown; needle-router report reads all of them."


def main() -> None:
    """Answer one order."""
    os.nice(NICENESS)
    sys.stdout.buffer.write(markup(json.load(sys.stdin.buffer)).encode())


def markup(order: Mapping[str, Any]) -> str:
    """The report on the last days, or why there is none."""
    try:
        return recorded(order)
    except LedgerError as error:
        return notice(f"The ledger cannot be read: {error.shown}")
    except ValueError as error:
        return notice(f"The ledger cannot be read: {error}")
    except OSError as error:
        # The router loaded them once; since then somebody may have taken them away.
        return notice(f"The certificates cannot be read: {error.strerror}")


def recorded(order: Mapping[str, Any], *, most: int = MAX_RECORDS) -> str:
    """The report on the last days. Raises `LedgerError`, and `ValueError` at a row that is no record."""
    until_s = order["until_s"]
    tally = Tally(day_of=day_of, since_s=until_s - order["days"] * 86_400, until_s=until_s)
    tally.take(read_ledger(place_of(order["ledger"]), since_s=tally.since_s, newest=most))
    certificates = [json.loads(content_of(path)) for path in order["certificates"]]
    found = content(summary(tally, penalty_usd=order["penalty_usd"], certificates=certificates))
    return notice(NEWEST_ONLY) + found if tally.taken >= most else found
