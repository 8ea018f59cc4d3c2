"""`report`: what the ledger says of a period, for a terminal, a program or a browser."""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needle_router.cli.exits import Exit, Stop, say
from needle_router.cli.logs import printable
from needle_router.cli.options import Settings, loaded
from needle_router.ledger.place import Place
from needle_router.report.document import document
from needle_router.report.model import DIMENSIONS, Report
from needle_router.report.period import day_of, moment_s, when
from needle_router.report.summary import summary
from needle_router.report.tally import Tally

if TYPE_CHECKING:
    from needle_router.config.schema import Config


def report(
    settings: Settings | None,
    *,
    since: str,
    until: str | None,
    by: str | None,
    penalty_usd: float | None,
    certificates: str | None,
    html: str | None,
    as_json: bool,
) -> Exit:
    """Print the report on a period, or write it as a page."""
    if by is not None and by not in DIMENSIONS:
        raise Stop(Exit.USAGE, f"--by {printable(by)}: expected one of {', '.join(DIMENSIONS)}")
    since_s, until_s = period(since, until)
    config = loaded(settings, routes=False).config
    price = config.report.penalty_usd if penalty_usd is None else penalty_usd
    if not 0 <= price < float("inf"):
        raise Stop(Exit.USAGE, f"--penalty-usd {price:g}: expected an amount of at least 0")
    path = ledger_of(config)
    known = certified(config, certificates)
    found = summary(read(path, since_s, until_s), penalty_usd=price, certificates=known)
    if html is not None:
        write_page(found, Path(html).expanduser())
    if as_json:
        print(json.dumps(document(found, by=DIMENSIONS if by is None else (by,))))
    elif html is None:
        show(found, path, by)
    return Exit.OK


def period(since: str, until: str | None) -> tuple[float, float]:
    """The two ends in Unix seconds; stops where they make no sense."""
    now = datetime.datetime.now().astimezone()
    ends = []
    for flag, text, end in (("--since", since, False), ("--until", until, True)):
        try:
            ends.append(now.timestamp() if text is None else moment_s(text, now, end=end))
        # OverflowError: a year that no clock reaches.
        except (ValueError, OverflowError):
            raise Stop(
                Exit.USAGE, f"{flag} {printable(text or '')}: expected 7d, 12h, a date or a date and time"
            ) from None
    if ends[0] >= ends[1]:
        raise Stop(Exit.USAGE, f"--since {printable(since)} is not before --until {printable(until or 'now')}")
    return ends[0], ends[1]


def ledger_of(config: Config) -> Place:
    """Where the ledger is; stops where there is none."""
    from needle_router.build import ledger_path

    path = ledger_path(config, os.environ)
    if path is None:
        raise Stop(Exit.USAGE, "the ledger is off: name one with --ledger")
    if not path.exists():
        raise Stop(Exit.USAGE, f"there is no ledger at {path}: serve first, or name another with --ledger")
    return path


def certified(config: Config, named_file: str | None) -> list[Mapping[str, Any]]:
    """The contents of the certificate file that is named, or of those in the configuration."""
    from needle_router.config.certificates import named

    paths = [named_file] if named_file is not None else list(dict.fromkeys(path for _, path in named(config)))
    return [certificate_file(path) for path in paths]


def certificate_file(path: str) -> Mapping[str, Any]:
    """The content of a certificate file; stops where it is none."""
    from needle_router.calibrate.certificates import BadCertificates, read_certificates
    from needle_router.config.certificates import content_of

    try:
        content = content_of(path)
        read_certificates(content)
    except BadCertificates as error:
        raise Stop(Exit.USAGE, *(f"{printable(path)} {printable(problem)}" for problem in error.problems)) from None
    except OSError as error:
        raise Stop(Exit.USAGE, f"{printable(path)} cannot be read: {error.strerror}") from None
    found: Mapping[str, Any] = json.loads(content)
    return found


def read(path: Place, since_s: float, until_s: float) -> Tally:
    """Every record of the period, added up."""
    from needle_router.ledger import LedgerError, read_ledger

    tally = Tally(day_of=day_of, since_s=since_s, until_s=until_s)
    try:
        return tally.take(read_ledger(path, since_s=since_s))
    except (LedgerError, ValueError) as error:
        raise Stop(Exit.FAILED, f"{path} cannot be read: {error}") from None


def show(found: Report, path: Place, by: str | None) -> None:
    """Tables for a terminal, or plain lines for whatever reads them."""
    from needle_router.cli.report_tables import write

    title = f"{when(found.since_s)} to {when(found.until_s)}, from {printable(str(path))}"
    write(found, sys.stdout, title=title, by=by)


def write_page(found: Report, target: Path) -> None:
    """The page as a file of its own, readable by its owner alone: names of tools and sums of money stand in it."""
    from needle_router.cli.files import write_private
    from needle_router.report.page import page

    write_private(target, page(found, when=when).encode())
    say(f"wrote {target}")
