"""`calibrate`: certified thresholds from labelled decisions, of a file or of the ledger."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from needle_router.calibrate.certify import (
    Certificate,
    certificate_file,
    certify,
    certify_tools,
    document,
    fingerprints,
    sentence,
)
from needle_router.calibrate.rules import RULES
from needle_router.calibrate.samples import ALL_TOOLS, BadSamples, Labelled, from_records, read_lines
from needle_router.cli.exits import Exit, Stop, say
from needle_router.cli.logs import printable
from needle_router.cli.options import Settings, loaded


def calibrate(
    settings: Settings | None,
    *,
    source: str | None,
    alpha: float,
    delta: float,
    per_tool: bool,
    method: str,
    fingerprint: str | None,
    output: str | None,
    as_json: bool,
) -> Exit:
    """Print what can be certified; exit code 0 when anything could, 1 when nothing."""
    check_arguments(alpha, delta, method)
    rows = of_one_fingerprint(from_file(source) if source is not None else from_ledger(settings), fingerprint)
    certificates = [certify(ALL_TOOLS, rows, alpha=alpha, delta=delta, method=method)]
    if per_tool:
        certificates += certify_tools(rows, alpha=alpha, delta=delta, method=method)
    if as_json:
        print(json.dumps(document(certificates, alpha=alpha, delta=delta)))
    else:
        tell(certificates, alpha, delta)
    certified = [certificate for certificate in certificates if certificate.threshold is not None]
    if output is not None and certified:
        write(Path(output).expanduser(), certificate_file(certified, alpha=alpha, delta=delta))
    return Exit.OK if certified else Exit.FAILED


def check_arguments(alpha: float, delta: float, method: str) -> None:
    """Stops when a number is no probability or the method is none."""
    for flag, value in (("--max-error", alpha), ("--delta", delta)):
        # Below this no number of calls that anybody has would do.
        if not 1e-6 <= value < 1:
            raise Stop(Exit.USAGE, f"{flag} {value:g}: expected a probability from 0.000001 to below 1")
    if method not in RULES:
        raise Stop(Exit.USAGE, f"--method {printable(method)}: expected one of {', '.join(RULES)}")


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


def from_ledger(settings: Settings | None) -> list[Labelled]:
    """The decisions of the ledger that were compared with the upstream."""
    from needle_router.build import ledger_path
    from needle_router.ledger import LedgerError, read_ledger

    path = ledger_path(loaded(settings).config, os.environ)
    if path is None:
        raise Stop(Exit.USAGE, "the ledger is off: name a file with --from, or a ledger with --ledger")
    if not path.exists():
        raise Stop(Exit.USAGE, f"there is no ledger at {path}: serve in shadow mode first, or name a file with --from")
    try:
        return list(from_records(read_ledger(path)))
    except (LedgerError, ValueError) as error:
        raise Stop(Exit.FAILED, f"{path} cannot be read: {error}") from None


def of_one_fingerprint(rows: list[Labelled], wanted: str | None) -> list[Labelled]:
    """The decisions of the fingerprint that is asked for, or of the most frequent one; says what is left out."""
    found = fingerprints(rows)
    if wanted is not None:
        if wanted not in found:
            raise Stop(Exit.USAGE, f"no decision has the fingerprint {printable(wanted)}")
    elif len(found) > 1:
        counted = ", ".join(printable(name) or "none" for name in found[1:6])
        say(
            f"using the {sum(row.fingerprint == found[0] for row in rows)} of {len(rows)} decisions with fingerprint "
            f"{printable(found[0]) or 'none'}; --fingerprint takes another: {counted}"
        )
    chosen = wanted if wanted is not None else next(iter(found), "")
    return [row for row in rows if row.fingerprint == chosen]


def tell(certificates: list[Certificate], alpha: float, delta: float) -> None:
    """The findings, one a line, below what is promised."""
    print(f"promise: at most {alpha:.4g} of the answered calls are wrong, with probability {1 - delta:.4g}")
    for certificate in certificates:
        print(printable(sentence(certificate)))


def write(path: Path, content: dict[str, Any]) -> None:
    """Put the file in place as a whole, so that no reader meets half of it."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".certificates-") as folder:
            whole = Path(folder, path.name)
            whole.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
            whole.replace(path)
    except OSError as error:
        raise Stop(Exit.FAILED, f"{path} cannot be written: {error.strerror}") from None
