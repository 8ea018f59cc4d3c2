"""`calibrate`: certified thresholds from labelled decisions, of a file or of the ledger."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from needle_policies.sideeffects import SideEffects
from needle_router.calibrate.bars import bars_by_risk
from needle_router.calibrate.certificates import FORMAT_VERSION
from needle_router.calibrate.certify import (
    Bar,
    Certificate,
    certificate_file,
    certify,
    certify_tools,
    document,
    fingerprints,
    sentence,
)
from needle_router.calibrate.rules import RULES
from needle_router.calibrate.samples import ALL_TOOLS, Labelled
from needle_router.cli.decisions import from_file, from_ledger
from needle_router.cli.exits import Exit, Stop, say
from needle_router.cli.logs import printable
from needle_router.cli.options import Settings, loaded

NOTHING_BOUND = (
    'the decisions have no "fingerprint", so the file is bound to nothing and `threshold` will not load it; '
    "needle-router explain --json prints that of a request"
)


@dataclass(frozen=True, slots=True)
class Promise:
    """What is to be certified: at most `alpha` wrong, or by risk what `classes` ask; with probability 1 - `delta`."""

    alpha: float | None
    delta: float
    per_tool: bool
    method: str
    classes: SideEffects | None = None

    def certificates(self, rows: Sequence[Labelled]) -> tuple[list[Certificate], tuple[str, ...]]:
        """What can be certified with these decisions, and the tools that are kept upstream anyway."""
        if self.classes is not None:
            bars, kept = bars_by_risk(self.classes, rows)
            judged = [row for row in rows if row.tool in bars]
            return certify_tools(judged, bars.__getitem__, delta=self.delta, method=self.method), kept
        assert self.alpha is not None
        bar = Bar(self.alpha)
        found = [certify(ALL_TOOLS, rows, alpha=self.alpha, delta=self.delta, method=self.method)]
        if self.per_tool:
            found += certify_tools(rows, lambda _: bar, delta=self.delta, method=self.method)
        return found, ()

    def __str__(self) -> str:
        if self.classes is not None:
            reads, writes = self.classes.read_error, self.classes.write_error
            what = f"at most {reads:.4g} of the answered calls that read and {writes:.4g} of those that write are wrong"
        else:
            what = f"at most {self.alpha:.4g} of the answered calls are wrong"
        return f"promise: {what}, with probability {1 - self.delta:.4g}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which decisions: those of `source`, or the watched or the audited ones of the ledger.

    Of them those of one `fingerprint`, of the most frequent one, or of `every` one by itself.
    """

    source: str | None
    fingerprint: str | None
    every: bool
    audits: bool = False


def calibrate(
    settings: Settings | None,
    selection: Selection,
    *,
    alpha: float | None,
    delta: float,
    per_tool: bool,
    by_risk: bool,
    method: str,
    output: str | None,
    as_json: bool,
) -> Exit:
    """Print what can be certified; exit code 0 when anything could, 1 when nothing."""
    check_arguments(alpha, delta, method, by_risk=by_risk)
    promise = Promise(alpha, delta, per_tool or by_risk, method, side_effects(settings) if by_risk else None)
    rows = decisions_of(settings, selection)
    chosen, documents = list(selected(rows, selection)), []
    if not as_json:
        print(promise)
    for name, decisions in chosen:
        certificates, kept = promise.certificates(decisions)
        documents.append(document(certificates, alpha=alpha, delta=delta) | {"fingerprint": name})
        if not as_json:
            tell(certificates, kept, title=f"fingerprint {printable(name) or 'none'}:" if selection.every else "")
    if as_json:
        print(json.dumps({"version": FORMAT_VERSION, "certificates": documents} if selection.every else documents[0]))
    content = certificate_file(documents)
    certified = content["certificates"]
    if output is not None and certified:
        if not all(entry["fingerprint"] for entry in certified):
            say(NOTHING_BOUND)
        write(Path(output).expanduser(), content)
    return Exit.OK if certified else Exit.FAILED


def decisions_of(settings: Settings | None, selection: Selection) -> list[Labelled]:
    """The decisions of the file or of the ledger."""
    if selection.source is None:
        return from_ledger(settings, audits=selection.audits)
    if selection.audits:
        raise Stop(Exit.USAGE, "--audits: are those of the ledger; a file with --from is taken as it is")
    return from_file(selection.source)


def check_arguments(alpha: float | None, delta: float, method: str, *, by_risk: bool = False) -> None:
    """Stops when a number is no probability, the method is none, or what is promised is not clear."""
    if by_risk and alpha is not None:
        raise Stop(Exit.USAGE, "--max-error and --by-risk: give one; by risk, side-effects says what may be wrong")
    if not by_risk and alpha is None:
        raise Stop(Exit.USAGE, "--max-error is missing: the share of answered calls that may be wrong, or --by-risk")
    for flag, value in (("--max-error", alpha), ("--delta", delta)):
        # Below this no number of calls that anybody has would do.
        if value is not None and not 1e-6 <= value < 1:
            raise Stop(Exit.USAGE, f"{flag} {value:g}: expected a probability from 0.000001 to below 1")
    if method not in RULES:
        raise Stop(Exit.USAGE, f"--method {printable(method)}: expected one of {', '.join(RULES)}")


def side_effects(settings: Settings | None) -> SideEffects:
    """The configured classes, or the default ones; stops where a class has no error that could be certified."""
    from needle_policies.registry import build

    tables = [table for table in loaded(settings, routes=False).config.policy if table["kind"] == "side-effects"]
    found = next(iter(build(tables[:1]).policies), SideEffects())
    assert isinstance(found, SideEffects)
    for name in ("read_error", "write_error"):
        if not 1e-6 <= getattr(found, name) < 1:
            raise Stop(
                Exit.USAGE, f"side-effects, {name}: {getattr(found, name)} cannot be certified; at least 0.000001"
            )
    return found


def selected(rows: list[Labelled], selection: Selection) -> Iterator[tuple[str, list[Labelled]]]:
    """The decisions by the fingerprints that are wanted; says what is left out."""
    found = fingerprints(rows)
    wanted = selection.fingerprint
    if wanted is not None and wanted not in found:
        raise Stop(Exit.USAGE, f"no decision has the fingerprint {printable(wanted)}")
    if selection.every and found:
        names = found
    else:
        names = [wanted if wanted is not None else next(iter(found), "")]
        if wanted is None and len(found) > 1:
            left_out(rows, found)
    for name in names:
        yield name, [row for row in rows if row.fingerprint == name]


def left_out(rows: list[Labelled], found: list[str]) -> None:
    """Say that there are other fingerprints than the most frequent one."""
    counted = ", ".join(printable(name) or "none" for name in found[1:6])
    say(
        f"using the {sum(row.fingerprint == found[0] for row in rows)} of {len(rows)} decisions with fingerprint "
        f"{printable(found[0]) or 'none'}; --fingerprint takes another: {counted}"
    )
    if len(found) > len(rows) / 4:
        say("nearly every decision has one of its own: where prompts change with each request, see ledger.fingerprint")


def tell(certificates: Sequence[Certificate], kept: Sequence[str], *, title: str) -> None:
    """The findings of one fingerprint, one a line."""
    if title:
        print(title)
    for certificate in certificates:
        print(printable(sentence(certificate)))
    for tool in kept:
        print(printable(f"{tool} [never]: kept upstream by side-effects"))


def write(path: Path, content: dict[str, Any]) -> None:
    """Put the file in place as a whole, so that no reader meets half of it."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".certificates-") as folder:
            whole = Path(folder, path.name)
            whole.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
            whole.replace(path)
    except OSError as error:
        raise Stop(Exit.FAILED, f"{path} cannot be written: {error.strerror}") from None
