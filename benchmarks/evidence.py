"""What the broad model's answers are worth: risk against coverage, what each verifier does, and what can be certified.

    python -m benchmarks.evidence [--cases 2000] [--rows rows.jsonl [--reuse]] [--write-docs]

Fresh sentences of the model's own generator, sentences with words and with phrasings that it was never shown, the
frozen cases of needle.environments and sentences of home-assistant-intents (where the package is installed) go through
engine and policies, as `needle-router replay` does it. Then half of each set certifies thresholds, and the other half
shows whether they keep their promise. `--rows` keeps what the engine said, and `--reuse` counts it again without a
run. `--write-docs` puts the tables into docs/evidence.md and the plots into docs/plots.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
from docs.generate import generated
from training.generators import GENERATORS

from needle_router.calibrate.binomial import upper_bound
from needle_router.calibrate.certify import certify, sentence
from needle_router.calibrate.samples import ALL_TOOLS, Labelled, Sample
from needle_router.config.schema import Config
from needle_router.replay.ablation import ablated, different
from needle_router.replay.cases import Case, Example, SourceProblem, case_of
from needle_router.replay.curves import picture
from needle_router.replay.result import cuts
from needle_router.replay.rows import Row, count, labelled, share
from needle_router.replay.run import Conditions, replay
from needle_router.replay.sources import read_source
from needle_router.replay.text import percent

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "training" / "models" / "broad-needle.cact"
PAGE, PLOTS = ROOT / "docs" / "evidence.md", ROOT / "docs" / "plots"
DAY = datetime.date(2026, 11, 30)
#: Not a seed that the model was trained or evaluated with.
SEED = 8_100_001
SPLITS = {"fresh sentences": "train", "unseen words": "slots", "unseen phrasings": "templates"}
OUTSIDE = ("needle-environments", "home-assistant-intents")
THRESHOLDS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8)
#: The ablation is read at any score and at this one, where the score begins to tell right from wrong.
THRESHOLD = 0.6
ALPHAS, DELTA = (0.05, 0.1, 0.2), 0.05
#: Halves drawn from the same set, to see how often a promise is kept and not only once.
DRAWS = 1000


# ------------------------------------------------------------------------------------------------------------- running


def drawn(split: str, number: int) -> list[Case]:
    """`number` fresh examples of the broad generator's natural mix."""
    source = GENERATORS["broad"](SEED, split)
    return [case_of(example_of(f"{split}/{index}", source.example())) for index in range(number)]


def example_of(name: str, found: Mapping[str, Any]) -> Example:
    """What the generator draws, as `replay` reads it."""
    return Example(name, found["kind"], found["query"], found["tools"], found["answers"], found.get("system"))


def cases_of(name: str, number: int) -> list[Case]:
    """The cases of one set."""
    return drawn(SPLITS[name], number) if name in SPLITS else read_source(name, SEED)


def run(model: Path, cases: Sequence[Case], workers: int) -> list[Row]:
    """The rows of all cases."""
    defaults = Config()
    engine = msgspec.structs.replace(defaults.engine, backend="rust", model=str(model), workers=workers)
    found: dict[int, Row] = {}

    def note(index: int, row: Row) -> None:
        found[index] = row
        if len(found) % 200 == 0:
            print(f"  {len(found)} of {len(cases)}", file=sys.stderr, flush=True)

    anyio.run(replay, msgspec.structs.replace(defaults, engine=engine), cases, Conditions(DAY), note)
    return [found[index] for index in range(len(cases))]


def measured(model: Path, number: int, workers: int) -> dict[str, list[Row]]:
    """Set -> its rows; a set whose package is missing is told and left out."""
    found = {}
    for name in (*SPLITS, *OUTSIDE):
        print(name, file=sys.stderr, flush=True)
        try:
            found[name] = run(model, cases_of(name, number), workers)
        except SourceProblem as problem:
            print(f"  left out: {problem}", file=sys.stderr)
    return found


def kept_rows(file: Path) -> dict[str, list[Row]]:
    """The rows that an earlier run wrote."""
    found: dict[str, list[Row]] = {}
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        row |= {"tools": tuple(row["tools"]), "failures": tuple(row["failures"])}
        found.setdefault(row.pop("set"), []).append(Row(**row))
    return found


def keep_rows(file: Path, sets: Mapping[str, Sequence[Row]]) -> None:
    """One JSON line a row."""
    lines = [json.dumps({"set": name, **asdict(row)}) + "\n" for name, rows in sets.items() for row in rows]
    file.write_text("".join(lines), "utf-8")


# ------------------------------------------------------------------------------------------------------------ promises


@dataclass(frozen=True, slots=True)
class Promise:
    """What one half certified and what the other half shows; `words` is the certificate in words."""

    alpha: float
    threshold: float | None
    n: int
    errors: int
    words: str

    @property
    def broken(self) -> bool:
        """Whether more than `alpha` of the other half is wrong."""
        return self.errors > self.alpha * self.n


def halves(decisions: Sequence[Labelled], seed: int) -> tuple[list[Labelled], list[Labelled]]:
    """Two halves, drawn by `seed`."""
    order = list(decisions)
    random.Random(seed).shuffle(order)
    return order[: len(order) // 2], order[len(order) // 2 :]


def promised(decisions: Sequence[Labelled], alpha: float, seed: int) -> Promise:
    """Certify on one half, count on the other."""
    one, other = halves(decisions, seed)
    certificate = certify(ALL_TOOLS, one, alpha=alpha, delta=DELTA)
    n, errors = (0, 0) if certificate.threshold is None else Sample(other).cut(certificate.threshold)
    return Promise(alpha, certificate.threshold, n, errors, sentence(certificate).removeprefix("all tools: "))


# -------------------------------------------------------------------------------------------------------------- tables


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def overview(sets: Mapping[str, Sequence[Row]]) -> str:
    """How often the engine alone is right, and what passes every check."""
    lines = []
    for name, rows in sets.items():
        found, sample = count(rows), Sample(labelled(rows))
        n, errors = sample.cut(0.0)
        passed = (percent(share(n, sample.total)), percent(share(errors, n)))
        reasons = [f"`{slug}` {number}" for slug, number in found.reasons.items() if slug != "below-threshold"][:4]
        lines.append((name, str(found.cases), percent(found.engine_accuracy), *passed, ", ".join(reasons)))
    return table(("set", "requests", "engine right", "pass every check", "of these wrong", "most held back by"), lines)


def coverage(sets: Mapping[str, Sequence[Row]]) -> str:
    """Risk against coverage at some thresholds."""
    lines = []
    for name, rows in sets.items():
        cells = [f"{percent(c.coverage)} / {percent(c.error)}" for c in cuts(labelled(rows), THRESHOLDS)]
        lines.append((name, *cells))
    return table(("set", *(f"{threshold:g}" for threshold in THRESHOLDS)), lines)


def ablation(sets: Mapping[str, Sequence[Row]]) -> str:
    """What each verifier does, set by set."""
    parts = []
    head = ("", "answered", "wrong", f"answered at {THRESHOLD:g}", "wrong", "wrong ones held back", "right ones")
    for name, rows in sets.items():
        lines = [
            (
                line.left_out,
                percent(share(line.answered, line.total)),
                percent(share(line.wrong, line.answered)),
                percent(share(line.answered_at, line.total)),
                percent(share(line.wrong_at, line.answered_at)),
                str(line.stopped_wrong),
                str(line.stopped_right),
            )
            for line in different(ablated(rows, THRESHOLD))
        ]
        parts.append(f"**{name}**\n\n{table(head, lines)}\n\n![Risk against coverage: {name}](plots/{plot_name(name)})")
    return "\n\n".join(parts)


def certified(sets: Mapping[str, Sequence[Row]]) -> str:
    """What one half certifies and the other half shows."""
    lines = []
    for name, rows in sets.items():
        for alpha in ALPHAS:
            promise = promised(labelled(rows), alpha, SEED)
            lines.append((name, percent(alpha), promise.words, shown(promise)))
    return table(("set", "max error", "certified on one half", "on the other half"), lines)


def shown(promise: Promise) -> str:
    """The other half in words."""
    if promise.threshold is None:
        return "-"
    bound = upper_bound(promise.errors, promise.n, DELTA) if promise.n else 1.0
    verdict = "broken" if promise.broken else "kept"
    return (
        f"{verdict}: {promise.errors} of {promise.n} wrong, {percent(share(promise.errors, promise.n))} "
        f"(at most {bound:.1%} with probability {1 - DELTA:.2g})"
    )


def repeated(sets: Mapping[str, Sequence[Row]]) -> str:
    """Many halves of each set, each against the whole set: how often is more wrong than was promised?"""
    lines = []
    for name, rows in sets.items():
        decisions = labelled(rows)
        whole = Sample(decisions)
        for alpha in ALPHAS:
            ends = [promised(decisions, alpha, SEED + draw).threshold for draw in range(DRAWS)]
            cut = [whole.cut(threshold) for threshold in ends if threshold is not None]
            broken = sum(errors > alpha * n for n, errors in cut)
            mean = sum(n for n, _ in cut) / len(cut) / whole.total if cut else None
            lines.append((name, percent(alpha), str(len(cut)), percent(mean), str(broken)))
    head = ("set", "max error", "certified", "answered, mean", f"broken, of {DRAWS:,}")
    return table(head, lines)


def plot_name(name: str) -> str:
    """The file of a set's plot."""
    return f"evidence-{name.replace(' ', '-')}.svg"


PARTS = {
    "overview": overview,
    "coverage": coverage,
    "ablation": ablation,
    "certified": certified,
    "repeated": repeated,
}


def told(sets: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, str]]:
    """Every table by the name of its part."""
    for name, write in PARTS.items():
        yield name, write(sets)


def write_docs(sets: Mapping[str, Sequence[Row]], tables: Mapping[str, str]) -> None:
    """Page and plots anew."""
    text = PAGE.read_text("utf-8")
    PAGE.write_text(generated(text, {name: (lambda name=name: tables[name]) for name in tables}), "utf-8")
    PLOTS.mkdir(exist_ok=True)
    for name, rows in sets.items():
        (PLOTS / plot_name(name)).write_text(picture(rows, title=name) + "\n", "utf-8")


def main() -> None:
    """Run, or count again, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--cases", type=int, default=2000, help="examples of each split of the generator")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=Path, help="keep what the engine said in this file")
    parser.add_argument("--reuse", action="store_true", help="count the rows of that file again")
    parser.add_argument("--write-docs", action="store_true")
    args = parser.parse_args()
    if args.reuse and args.rows is None:
        parser.error("--reuse needs --rows")
    sets = kept_rows(args.rows) if args.reuse else measured(args.model, args.cases, args.workers)
    if args.rows is not None and not args.reuse:
        keep_rows(args.rows, sets)
    tables = dict(told(sets))
    for name, text in tables.items():
        print(f"## {name}\n\n{text}\n")
    if args.write_docs:
        write_docs(sets, tables)


if __name__ == "__main__":
    main()
