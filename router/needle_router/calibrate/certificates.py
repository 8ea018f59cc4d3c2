"""The certificate file: written by `calibrate`, read by the `threshold` policy.

One entry a fingerprint, so that one file serves several applications. Whoever reads it names everything that is wrong
with it at once; a file of another version is refused rather than guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from needle_policies.certified import Certificates, Scores
from needle_router.calibrate.samples import ALL_TOOLS

FORMAT_VERSION = 2
MAX_PROBLEMS = 20


class BadCertificates(ValueError):
    """A file that is none of ours; `problems` says what is wrong with it, at most `MAX_PROBLEMS` lines."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems[:MAX_PROBLEMS])


def read_certificates(content: bytes) -> Certificates:
    """What the content of a file certifies. Raises `BadCertificates`."""
    try:
        document = json.loads(content)
    # RecursionError: brackets nested by the thousand.
    except (ValueError, RecursionError) as error:
        raise BadCertificates([f"is not JSON ({error})"]) from None
    problems = list(_faults(document))
    if problems:
        raise BadCertificates(problems)
    return Certificates({entry["fingerprint"]: _scores(entry) for entry in document["certificates"]})


def _scores(entry: Mapping[str, Any]) -> Scores:
    scores = {name: float(row["threshold"]) for name, row in entry["tools"].items()}
    every = scores.pop(ALL_TOOLS, None)
    # A tool that was judged by itself and is not there was refused; the promise for all together is no way round that.
    return Scores(scores, None if entry["per_tool"] else every)


def _faults(document: Any) -> Iterator[str]:
    if not isinstance(document, dict):
        yield "is not a JSON object"
        return
    version = document.get("version")
    if version != FORMAT_VERSION:
        yield f"has version {_shown(version)}; this router reads {FORMAT_VERSION}: calibrate again"
        return
    entries = document.get("certificates")
    if not isinstance(entries, list) or not entries:
        yield '"certificates" must be a list of at least one entry'
        return
    for index, entry in enumerate(entries):
        yield from (f"certificates[{index}]{fault}" for fault in _entry_faults(entry))
    names = [entry.get("fingerprint") for entry in entries if isinstance(entry, dict)]
    yield from (f"fingerprint {_shown(name)} occurs twice" for name in dict.fromkeys(names) if names.count(name) > 1)


def _entry_faults(entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield " is not an object"
        return
    fingerprint, tools = entry.get("fingerprint"), entry.get("tools")
    if not isinstance(fingerprint, str) or not fingerprint:
        yield (
            f".fingerprint must be the fingerprint of a decision, not {_shown(fingerprint)}: labelled decisions need a "
            '"fingerprint", which `needle-router explain --json` prints for a request'
        )
    if not isinstance(entry.get("per_tool"), bool):
        yield f".per_tool must be true or false, not {_shown(entry.get('per_tool'))}"
    if not isinstance(tools, dict) or not tools:
        yield ".tools must be an object with at least one tool"
        return
    for name, row in tools.items():
        score = row.get("threshold") if isinstance(row, dict) else None
        if not isinstance(score, (int, float)) or isinstance(score, bool) or not 0 <= score <= 1:
            yield f".tools.{name}.threshold must be a number from 0 to 1, not {_shown(score)}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
