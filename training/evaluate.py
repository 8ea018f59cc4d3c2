"""Measure an exported model with needle-rs.

    python -m training.evaluate --generator broad --model training/models/broad-needle.cact --n 100 --free

kinds    exact answers by kind of request: training-like, unseen slot words, unseen phrasings
routing  on the natural mix: how well the score sorts, and risk against coverage, with and without a grounding check
outside  cases that have nothing to do with the generators, where their packages are installed
speed    one decision (generation and confidence) in milliseconds, and the memory of this process

Needs this project's packages and needle-rs; for `outside` also cactus-needle and home-assistant-intents.
"""

import argparse
import collections
import json
import pathlib
import time
from functools import partial

import needle_rs
from training.generators import GENERATORS
from training.scores import Row

from needle_router.replay.cases import SourceProblem
from needle_router.replay.environments import environments
from needle_router.replay.home import home
from training import scores

SPLITS = {"training_like": "train", "unseen_words": "slots", "unseen_phrasings": "templates"}
MAX_NEW_TOKENS = 110
SPEED_DECISIONS = 300
HOME_SENTENCES = 203


class Model:
    """A `.cact` file that decides."""

    def __init__(self, path, *, constrain=True):
        self.engine, self.constrain = needle_rs.V2Engine.load(str(path)), constrain

    def decide(self, query, tools, system=None):
        """(calls or None, confidence, seconds of generation, seconds of the confidence pass)."""
        text = json.dumps(tools, separators=(",", ":"), ensure_ascii=False)
        started = time.perf_counter()
        out = self.engine.generate(query, text, max_new_tokens=MAX_NEW_TOKENS, system=system, constrain=self.constrain)
        generated = time.perf_counter()
        try:
            calls = json.loads(out["tool_call"])
        except (TypeError, ValueError):
            calls = None
        score = self.engine.confidence_for(query, text, out["text"])
        return calls, score, generated - started, time.perf_counter() - generated


def run(model, cases, *, ordered=True, keep=6):
    """(rows, the first failures) of cases (query, tools, wanted, system)."""
    rows, failures = [], []
    for query, tools, wanted, system in cases:
        calls, score, generate_s, confidence_s = model.decide(query, tools, system)
        valid = scores.valid(calls, tools)
        grounded = valid and scores.grounded(calls, tools, query)
        exact = scores.same(calls, wanted, ordered=ordered)
        rows.append(Row(calls, wanted, exact, score, valid, grounded, generate_s, confidence_s))
        if not exact and len(failures) < keep:
            failures.append({"query": query, "want": wanted, "got": calls, "confidence": round(score, 3)})
    return rows, failures


def case(example):
    """An example as a case."""
    return example["query"], example["tools"], example["answers"], example.get("system")


def generated(model, generator, count, seed):
    """(by kind, by mix) of fresh examples, for each split that the generator has."""
    kinds, mixes = {}, {}
    for label, split in SPLITS.items():
        if split not in generator.SPLITS:
            continue
        source, kinds[label] = generator(seed, split), {}
        for kind in generator.KINDS:
            rows, failures = run(model, [case(source.example(kind)) for _ in range(count)], keep=2)
            kinds[label][kind] = {**scores.summary(rows), "examples_of_failure": failures}
        mixes[label] = mix(model, generator(seed + 1, split), 4 * count)
    return kinds, mixes


def mix(model, source, count):
    """The natural mix of one split."""
    examples = [source.example() for _ in range(count)]
    rows, _ = run(model, map(case, examples))
    by_tools = collections.defaultdict(list)
    for example, row in zip(examples, rows, strict=True):
        by_tools[len(example["tools"])].append(row.exact)
    shares = {number: scores.share(sum(exact), len(exact)) for number, exact in sorted(by_tools.items())}
    return {**scores.routing(rows), "exact_by_declared_tools": shares}


def grouped(model, cases, *, ordered, keep):
    """Routing figures of outside examples, and right answers by group."""
    examples = list(cases)
    taken = [(example.query, list(example.tools), list(example.calls), example.system) for example in examples]
    rows, failures = run(model, taken, ordered=ordered, keep=keep)
    groups = collections.defaultdict(list)
    for example, row in zip(examples, rows, strict=True):
        for name in {example.name.partition("/")[0], example.category}:
            groups[name].append(row.exact)
    counts = {name: f"{sum(exact)}/{len(exact)}" for name, exact in groups.items()}
    return {**scores.routing(rows), "groups": counts, "examples_of_failure": failures}


def outside_cases(seed):
    """Name -> (examples, whether the order of calls counts)."""
    return {
        "needle_environments": (partial(environments, with_system=False), False),
        "needle_environments_with_system": (partial(environments, with_system=True), False),
        "home_assistant_intents": (partial(home, HOME_SENTENCES, seed), True),
    }


def measured_outside(model, seed):
    """Every outside set whose package is there."""
    found = {}
    for name, (read, ordered) in outside_cases(seed).items():
        try:
            found[name] = grouped(model, read(), ordered=ordered, keep=12)
        except SourceProblem as error:
            found[name] = {"skipped": str(error)}
    return found


def memory_mb():
    """Resident memory of this process; None where the system does not tell."""
    status = pathlib.Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    kilobytes = next((line.split()[1] for line in lines if line.startswith("VmRSS")), None)
    return round(int(kilobytes) / 1024, 1) if kilobytes else None


def percentile_ms(seconds, part):
    """A percentile in milliseconds."""
    return round(1000 * sorted(seconds)[int(part * (len(seconds) - 1))], 1)


def speed(path, generator, seed):
    """Load time, decision times and memory."""
    before, started = memory_mb(), time.perf_counter()
    model = Model(path)
    load_s, loaded = time.perf_counter() - started, memory_mb()
    source = generator(seed)
    cases = [case(source.example()) for _ in range(SPEED_DECISIONS)]
    run(model, cases[:1])
    rows, _ = run(model, cases)
    series = {
        "generate": [row.generate_s for row in rows],
        "confidence": [row.confidence_s for row in rows],
        "decision": [row.generate_s + row.confidence_s for row in rows],
    }
    times = {
        f"{name}_{label}_ms": percentile_ms(values, part)
        for name, values in series.items()
        for label, part in (("p50", 0.5), ("p95", 0.95))
    }
    memory = {"rss_before_load_mb": before, "rss_after_load_mb": loaded, "rss_after_use_mb": memory_mb()}
    return {"load_ms": round(1000 * load_s, 1), **memory, "decisions": len(rows), **times}


def report(result):
    """The figures on one screen."""
    print(json.dumps(result["speed"]))
    for label, found in result["routing"].items():
        exact = {kind: row["exact"] for kind, row in result["kinds"][label].items()}
        print(f"{label}: mix {found['exact']}, AUC {found['auc_all']} (calls {found['auc_calls']}), {exact}")
        for row in found["risk_coverage"]:
            print("   ", row)
    for name, found in result.get("outside", {}).items():
        print(name, {key: value for key, value in found.items() if key not in ("examples_of_failure", "risk_coverage")})


def main():
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generator", choices=sorted(GENERATORS), required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--n", type=int, default=200, help="examples a kind; the mix takes four times as many")
    parser.add_argument("--seed", type=int, default=7_000_001)
    parser.add_argument("--free", action="store_true", help="decode without needle-rs' schema constraint")
    parser.add_argument("--no-outside", action="store_true")
    args = parser.parse_args()

    generator, model = GENERATORS[args.generator], Model(args.model, constrain=not args.free)
    result = {"model": args.model.name, "bytes": args.model.stat().st_size, "constrained": not args.free}
    result["speed"] = speed(args.model, generator, args.seed + 9)
    result["kinds"], result["routing"] = generated(model, generator, args.n, args.seed)
    if not args.no_outside:
        result["outside"] = measured_outside(model, args.seed)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    report(result)


if __name__ == "__main__":
    main()
