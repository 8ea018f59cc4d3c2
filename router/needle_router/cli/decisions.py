"""Labelled decisions for the command line: from a file of JSON lines, or from the ledger."""

from __future__ import annotations

import os
from pathlib import Path

from needle_router.calibrate.samples import BadSamples, Labelled, from_records, read_lines
from needle_router.cli.exits import Exit, Stop
from needle_router.cli.logs import printable
from needle_router.cli.options import Settings, loaded


def from_file(source: str) -> list[Labelled]:
    """The decisions of a JSON lines file."""
    try:
        with Path(source).expanduser().open("rb") as lines:
            return read_lines(lines)
    except BadSamples as error:
        raise Stop(Exit.USAGE, f"{source} has lines that are no labelled decisions:", *indented(error)) from None
    except OSError as error:
        raise Stop(Exit.USAGE, f"{source} cannot be read: {error.strerror}") from None


def indented(error: BadSamples) -> list[str]:
    """Its problems, below a title."""
    return [f"  {printable(problem)}" for problem in error.problems]


def from_ledger(settings: Settings | None, *, audits: bool) -> list[Labelled]:
    """The decisions of the ledger that were compared with the upstream, beside it or in audits."""
    from needle_router.build import ledger_path
    from needle_router.ledger import LedgerError, read_ledger

    path = ledger_path(loaded(settings, routes=False).config, os.environ)
    if path is None:
        raise Stop(Exit.USAGE, "the ledger is off: name a file with --from, or a ledger with --ledger")
    if not path.exists():
        raise Stop(Exit.USAGE, f"there is no ledger at {path}: serve in shadow mode first, or name a file with --from")
    try:
        return list(from_records(read_ledger(path), audits=audits))
    except (LedgerError, ValueError) as error:
        raise Stop(Exit.FAILED, f"{path} cannot be read: {error}") from None
