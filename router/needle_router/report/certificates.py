"""What was certified, and what was seen of it: is it still met, and does what was compared keep the promise?

The comparisons of the period may be those that the certificate was made from, and looking often finds something at some
time: a broken promise here is a reason to calibrate again, not a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from needle_router.calibrate.binomial import cdf, interval
from needle_router.calibrate.samples import ALL_TOOLS, Labelled
from needle_router.report.model import CONFIDENCE, CertificateState, Rate
from needle_router.report.tally import Tally


def states(content: Mapping[str, Any], tally: Tally) -> Iterator[CertificateState]:
    """One for each tool of each entry of a certificate file that `read_certificates` accepts."""
    rows = [row for scored in tally.scored.values() for row, _ in scored if row.verified]
    for entry in content["certificates"]:
        fingerprint = entry["fingerprint"]
        here = [row for row in rows if row.fingerprint == fingerprint]
        for group, certified in entry["tools"].items():
            yield state(entry, group, certified, here, tally.fingerprints.get(fingerprint, 0))


def state(
    entry: Mapping[str, Any], group: str, certified: Mapping[str, Any], here: Iterable[Labelled], decided: int
) -> CertificateState:
    """What became of one certificate."""
    threshold = float(certified["threshold"])
    answered = [row for row in here if group in (ALL_TOOLS, row.tool) and row.confidence >= threshold]
    wrong = sum(not row.correct for row in answered)
    return CertificateState(
        fingerprint=entry["fingerprint"],
        tool=group,
        threshold=threshold,
        max_error=certified.get("max_error", entry.get("max_error")),
        delta=entry.get("delta"),
        n=certified.get("n", 0),
        errors=certified.get("errors", 0),
        decided=decided,
        wrong=Rate(wrong, len(answered), *interval(wrong, len(answered), 1 - CONFIDENCE)),
    )


def broken(one: CertificateState) -> bool:
    """Whether so many wrong ones would be seen at most one time in twenty if the promise held."""
    if not one.max_error or not one.wrong.count:
        return False
    return 1.0 - cdf(one.wrong.count - 1, one.wrong.n, one.max_error) <= 1 - CONFIDENCE
