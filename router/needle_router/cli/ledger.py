"""`ledger export`, `ledger info` and `ledger prune`."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import sys
from pathlib import Path

from needle_router.cli.exits import Exit, Stop, say
from needle_router.cli.files import private_file
from needle_router.cli.logs import printable
from needle_router.cli.options import Settings, loaded
from needle_router.ledger import LedgerError, Place
from needle_router.ledger.export import FORMATS, STREAMS, to_sqlite, written
from needle_router.ledger.store import Summary
from needle_router.ledger.stores import store_of
from needle_router.report.period import moment_s

STDOUT = "-"


def export(settings: Settings | None, *, kind: str, since: str | None, until: str | None, output: str) -> Exit:
    """Write the records of a period to a file or standard output."""
    if kind not in FORMATS:
        raise Stop(Exit.USAGE, f"--format {printable(kind)}: expected one of {', '.join(FORMATS)}")
    if output == STDOUT and kind not in STREAMS:
        raise Stop(Exit.USAGE, f"--format {kind}: cannot go to standard output, name a file with --output")
    since_s = 0.0 if since is None else moment("--since", since)
    until_s = float("inf") if until is None else moment("--until", until, end=True)
    place = place_of(settings)
    try:
        rows = written(place, since_s=since_s, until_s=until_s)
        if output == STDOUT:
            count = STREAMS[kind](rows, sys.stdout.buffer)
        else:
            with private_file(Path(output).expanduser()) as whole:
                if kind in STREAMS:
                    with whole.open("wb") as out:
                        count = STREAMS[kind](rows, out)
                else:
                    count = to_sqlite(rows, whole)
    except (LedgerError, ValueError) as error:
        raise unreadable(place, error) from None
    say(f"{count} records exported" + ("" if output == STDOUT else f" to {output}"))
    return Exit.OK


def info(settings: Settings | None, *, as_json: bool) -> Exit:
    """Say where the ledger is and what it holds."""
    place = place_of(settings)
    try:
        with store_of(place).reading() as ledger:
            found = ledger.summary()
    except LedgerError as error:
        raise unreadable(place, error) from None
    if as_json:
        print(json.dumps({"place": str(place), **dataclasses.asdict(found)}))
    else:
        for name, text in lines(place, found).items():
            print(f"{name:<8} {text}")
    return Exit.OK


def lines(place: Place, found: Summary) -> dict[str, str]:
    """What `info` tells, by name."""
    return {
        "ledger": printable(str(place)),
        "schema": str(found.schema),
        "records": str(found.records),
        "oldest": when(found.oldest_s),
        "newest": when(found.newest_s),
        "size": f"{found.size_bytes / 1e6:.1f} MB",
    }


def prune(settings: Settings | None, *, older_than: str | None) -> Exit:
    """Remove old records now; `older_than` None means what the configuration keeps."""
    place = place_of(settings)
    days = loaded(settings).config.ledger.retention_days
    before_s = moment("--older-than", f"{days}d" if older_than is None else older_than)
    store = store_of(place)
    try:
        count = store.prune(before_s)
    except LedgerError as error:
        raise Stop(Exit.FAILED, f"{place} cannot be written: {error}") from None
    finally:
        store.close()
    print(f"{count} records from before {when(before_s)} removed")
    return Exit.OK


def place_of(settings: Settings | None) -> Place:
    """Where the ledger is; stops where there is none."""
    from needle_router.build import ledger_path

    place = ledger_path(loaded(settings).config, os.environ)
    if place is None:
        raise Stop(Exit.USAGE, "the ledger is off: name one with --ledger")
    if not place.exists():
        raise Stop(Exit.USAGE, f"there is no ledger at {place}: serve first, or name another with --ledger")
    return place


def moment(flag: str, text: str, *, end: bool = False) -> float:
    """Unix seconds of what a flag says; stops where it says nothing."""
    try:
        return moment_s(text, datetime.datetime.now().astimezone(), end=end)
    # OverflowError: a year that no clock reaches.
    except (ValueError, OverflowError):
        raise Stop(Exit.USAGE, f"{flag} {printable(text)}: expected 7d, 12h, a date or a date and time") from None


def when(time_s: float | None) -> str:
    """A moment for people, in the zone of this machine."""
    if time_s is None:
        return "-"
    return datetime.datetime.fromtimestamp(time_s).astimezone().isoformat(" ", "seconds")


def unreadable(place: Place, error: Exception) -> Stop:
    """The end of a command that could not read the ledger."""
    return Stop(Exit.FAILED, f"{place} cannot be read: {error}")
