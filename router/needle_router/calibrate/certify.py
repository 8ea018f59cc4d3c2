"""Certificates: what is promised, on which data and for which tools, and what is missing where nothing can be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from needle_router.calibrate.binomial import needed
from needle_router.calibrate.certificates import FORMAT_VERSION
from needle_router.calibrate.rules import RULES
from needle_router.calibrate.samples import ALL_TOOLS, Labelled, Sample


@dataclass(frozen=True, slots=True)
class Certificate:
    """With probability 1 - `delta`, at most `alpha` of the calls answered at `threshold` are wrong.

    `threshold` None: nothing is certified, and `n` and `errors` count all calls that the verifiers passed; otherwise
    those at or above it. `coverage` is the share of the decided requests that would be answered, `needed` the number of
    calls without an error that would do. `pooled` names the tools that were judged together, empty for one alone.
    `risk` is the class that `alpha` comes from, where it comes from one.
    """

    tool: str
    threshold: float | None
    n: int
    errors: int
    coverage: float
    needed: int
    method: str
    alpha: float
    delta: float
    fingerprint: str = ""
    pooled: tuple[str, ...] = ()
    risk: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """What is asked of a tool's calls: at most `alpha` of them wrong. `risk` names the class behind it, if any."""

    alpha: float
    risk: str = ""


def certify(
    tool: str, decisions: Sequence[Labelled], *, alpha: float, delta: float, method: str = "best"
) -> Certificate:
    """The certificate for a group of decisions; `method` is one of `RULES`."""
    sample = Sample(decisions)
    choice = RULES[method](sample, alpha, delta)
    n, errors = sample.cut(choice.threshold or 0.0)
    return Certificate(
        tool=tool,
        threshold=choice.threshold,
        n=n,
        errors=errors,
        coverage=n / sample.total if choice.threshold is not None else 0.0,
        needed=needed(alpha, delta),
        method=choice.method,
        alpha=alpha,
        delta=delta,
        fingerprint=decisions[0].fingerprint if decisions else "",
    )


def certify_tools(
    decisions: Sequence[Labelled], bar: Callable[[str], Bar], *, delta: float, method: str = "best"
) -> list[Certificate]:
    """One certificate a tool; all of them hold together with probability 1 - `delta`.

    `bar` says what is asked of a tool. Tools with too few calls for a certificate of their own are judged together with
    those of the same bar and get the same threshold, which then speaks of their calls taken together.
    """
    by_tool: defaultdict[str, list[Labelled]] = defaultdict(list)
    for row in decisions:
        if row.tool:
            by_tool[row.tool].append(row)
    found: list[Certificate] = []
    groups = _groups(by_tool, bar, delta)
    for names in groups:
        rows = [row for name in names for row in by_tool[name]]
        asked = bar(names[0])
        one = certify(names[0], rows, alpha=asked.alpha, delta=delta / len(groups), method=method)
        pooled = names if len(names) > 1 else ()
        found += [replace(one, tool=name, pooled=pooled, risk=asked.risk) for name in names]
    return sorted(found, key=lambda certificate: certificate.tool)


def _groups(
    by_tool: Mapping[str, Sequence[Labelled]], bar: Callable[[str], Bar], delta: float
) -> list[tuple[str, ...]]:
    """Tools with data enough, each alone, and the rest together; decided by numbers of calls, not by labels."""
    share = delta / max(1, len(by_tool))
    rare: defaultdict[Bar, list[str]] = defaultdict(list)
    groups: list[tuple[str, ...]] = []
    for name, rows in sorted(by_tool.items()):
        asked = bar(name)
        if sum(row.verified for row in rows) >= needed(asked.alpha, share):
            groups.append((name,))
        else:
            rare[asked].append(name)
    return [*groups, *map(tuple, rare.values())]


def fingerprints(decisions: Sequence[Labelled]) -> list[str]:
    """The fingerprints in the data, the one with most decisions first: a certificate speaks of one only."""
    counts = Counter(row.fingerprint for row in decisions)
    return sorted(counts, key=lambda name: (-counts[name], name))


def as_dict(certificate: Certificate) -> dict[str, Any]:
    """The entry of one tool in JSON output and in a certificate file."""
    entry: dict[str, Any] = {
        "threshold": certificate.threshold,
        "n": certificate.n,
        "errors": certificate.errors,
        "coverage": round(certificate.coverage, 6),
        "needed": certificate.needed,
        "method": certificate.method,
    }
    if certificate.risk:
        entry |= {"risk": certificate.risk, "max_error": certificate.alpha}
    return {**entry, "pooled": list(certificate.pooled)} if certificate.pooled else entry


def document(certificates: Sequence[Certificate], *, alpha: float | None, delta: float) -> dict[str, Any]:
    """What is certified under one fingerprint: the promise, what it is bound to, and `tools` by name.

    `alpha` is None where each tool has a bar of its own.
    """
    return {
        "version": FORMAT_VERSION,
        "max_error": alpha,
        "delta": delta,
        "fingerprint": certificates[0].fingerprint if certificates else "",
        "per_tool": any(certificate.tool != ALL_TOOLS for certificate in certificates),
        "tools": {certificate.tool: as_dict(certificate) for certificate in certificates},
    }


def certificate_file(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The content of a certificate file: the documents that certify something, without what they do not.

    One without a fingerprint is bound to nothing, and would make the whole file one that nobody loads; it is kept only
    where there is no other.
    """
    certified = [entry for one in documents if (entry := _certified(one))]
    bound = [entry for entry in certified if entry["fingerprint"]]
    return {"version": FORMAT_VERSION, "certificates": bound or certified}


def _certified(one: Mapping[str, Any]) -> dict[str, Any] | None:
    tools = {name: row for name, row in one["tools"].items() if row["threshold"] is not None}
    if not tools:
        return None
    return {key: value for key, value in one.items() if key != "version"} | {"tools": tools}


def sentence(certificate: Certificate) -> str:
    """What a certificate says, or why there is none, in one line."""
    name = "all tools" if certificate.tool == ALL_TOOLS else certificate.tool
    others = [other for other in certificate.pooled if other != certificate.tool]
    if others:
        name += f" (together with {', '.join(others)})"
    if certificate.risk:
        name += f" [{certificate.risk}: at most {certificate.alpha:.4g}]"
    return f"{name}: {_finding(certificate)}"


def _finding(certificate: Certificate) -> str:
    n, errors = certificate.n, certificate.errors
    if certificate.threshold is not None:
        return (
            f"threshold {certificate.threshold}: {errors} of {n} calls wrong, "
            f"{certificate.coverage:.1%} of requests answered, by {certificate.method}"
        )
    if n < certificate.needed:
        wrong = f", {errors} of them wrong" if errors else ""
        return f"not enough data: {certificate.needed} clean offloadable calls needed, have {n}{wrong}"
    least = needed(certificate.alpha, certificate.delta, errors)
    if errors <= certificate.alpha * n and n < least:
        return f"not enough data: {least} offloadable calls needed with {errors} wrong among them, have {n}"
    return f"nothing certified: {errors} of {n} offloadable calls are wrong, and no score sets enough good ones apart"
