"""The tables of README.md, from the figures that `training.evaluate` wrote. Pure functions."""

SPLITS = {
    "training_like": "training-like",
    "unseen_words": "unseen words",
    "unseen_phrasings": "unseen phrasings",
}
KINDS = {
    "single": "one call",
    "double": "two intents",
    "spread": "one verb, two rooms",
    "chat": "small talk, no call wanted",
    "remark": "remarks and other questions, no call wanted",
    "unserved": "no declared tool serves it",
    "negation": "negated",
    "state": "question about a state",
    "missing": "a required value is missing",
}
THRESHOLDS = (0.0, 0.3, 0.5, 0.6, 0.7)
OUTSIDE = {
    "needle_environments": "needle.environments, tools alone",
    "needle_environments_with_system": "needle.environments, with its system text",
    "home_assistant_intents": "home-assistant-intents",
}


def kinds(found):
    """Exact answers by kind of request, then what a router needs to know of the mix."""
    rows = [[name, *(whole(found["kinds"][split][kind]["exact"]) for split in SPLITS)] for kind, name in KINDS.items()]
    mixes = [found["routing"][split] for split in SPLITS]
    rows.append(["**natural mix**", *(f"**{whole(mix['exact'])}**" for mix in mixes)])
    rows.append(["called though nothing is wanted", *(percent(mix["call_though_none_wanted"]) for mix in mixes)])
    aucs = [f"{mix['auc_all']:.3f} / {mix['auc_calls']:.3f}" for mix in mixes]
    rows.append(["AUC of the score, all / calls only", *aucs])
    return table(["kind of request", *SPLITS.values()], rows)


def risk(found):
    """Answered at a threshold, and how much of it is wrong."""
    columns = [("training_like", False), ("training_like", True), ("unseen_words", True), ("unseen_phrasings", True)]
    rows = [[f"{at}", *(cell(found["routing"][split], at, ground) for split, ground in columns)] for at in THRESHOLDS]
    return table(
        ["threshold", "training-like", "grounded", "unseen words, grounded", "unseen phrasings, grounded"], rows
    )


def cell(mix, threshold, ground):
    """Coverage and error of one threshold."""
    row = next(row for row in mix["risk_coverage"] if (row["threshold"], row["grounding"]) == (threshold, ground))
    return f"{percent(row['coverage'])} / {percent(row['error_among_answered'])}"


def outside(found):
    """Right answers of the outside sets."""
    sets = found.get("outside", {})
    rows = [
        [name, str(sets[key]["n"]), percent(sets[key]["exact"])]
        for key, name in OUTSIDE.items()
        if "n" in sets.get(key, {})
    ]
    return table(["set", "cases", "exact"], rows) if rows else "Not measured."


def speed(found):
    """Times and memory in a sentence."""
    times = found["speed"]
    return (
        f"{times['decisions']} decisions on one thread: {times['generate_p50_ms']} ms at the median without the score "
        f"({times['generate_p95_ms']} ms at the 95th\npercentile), {times['decision_p50_ms']} ms with it "
        f"({times['decision_p95_ms']} ms); load {times['load_ms']} ms; {times['rss_after_use_mb']} MB."
    )


def table(head, rows):
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---").replace("--- |", "---|")


def whole(share):
    """A share in whole percent."""
    return f"{share * 100:.0f} %"


def percent(share):
    """A share in tenths of a percent, a dash for nothing."""
    return "-" if share is None else f"{share * 100:.1f} %"
