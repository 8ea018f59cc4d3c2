"""What is counted when a model's answers are compared with the expected ones. Pure functions over rows.

"Exact": the same calls in the same order with equal arguments. "Answered": a non-empty, schema-valid list of calls at
or above the threshold, which is what a router would answer itself.
"""

import json
import re
from dataclasses import dataclass

from training.generators.words import NUMBER_WORDS

THRESHOLDS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "object": dict, "array": list}
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Row:
    """One decision: what was called (None: unreadable), what was wanted, and what the checks say. Times in seconds."""

    calls: list | None
    wanted: list
    exact: bool
    confidence: float
    valid: bool
    grounded: bool
    generate_s: float = 0.0
    confidence_s: float = 0.0


def same(got, want, *, ordered=True):
    """Whether two lists of calls are equal; the order of calls counts only where `ordered`."""
    if got is None:
        return False
    if ordered:
        return got == want
    return sorted(map(canonical, got)) == sorted(map(canonical, want))


def canonical(call):
    """A call as text that is the same for any order of keys."""
    return json.dumps(call, sort_keys=True)


def valid(calls, tools):
    """Whether every call names a declared tool and its arguments fit the declared parameters."""
    declared = {tool["name"]: tool.get("parameters", {}) for tool in tools}
    return calls is not None and all(valid_call(call, declared) for call in calls)


def valid_call(call, declared):
    """Whether one call fits; `declared` is tool name -> parameters."""
    if not isinstance(call, dict) or not isinstance(call.get("arguments"), dict) or call.get("name") not in declared:
        return False
    schema, given = declared[call["name"]], call["arguments"]
    shapes = schema.get("properties", {})
    if any(key not in given for key in schema.get("required", [])):
        return False
    return all(key in shapes and fits(value, shapes[key]) for key, value in given.items())


def fits(value, schema):
    """Whether a value has a declared type, set and range."""
    return any(fits_part(value, part) for part in schema.get("anyOf", [schema]))


def fits_part(value, part):
    """The same for one alternative."""
    kind = part.get("type")
    if kind and (not isinstance(value, TYPES.get(kind, object)) or (isinstance(value, bool) and kind != "boolean")):
        return False
    if "enum" in part and value not in part["enum"]:
        return False
    if isinstance(value, (int, float)):
        return part.get("minimum", value) <= value <= part.get("maximum", value)
    return True


def grounded(calls, tools, query):
    """Whether free texts and numbers among the arguments stand in the request."""
    shapes = {tool["name"]: tool.get("parameters", {}).get("properties", {}) for tool in tools}
    text = query.lower()
    numbers = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}
    numbers |= {NUMBER_WORDS[word] for word in text.split() if word in NUMBER_WORDS}
    for call in calls:
        for key, value in call["arguments"].items():
            if isinstance(value, bool) or "enum" in shapes[call["name"]].get(key, {}):
                continue
            if isinstance(value, str) and value.lower() not in text:
                return False
            if isinstance(value, (int, float)) and value not in numbers:
                return False
    return True


def auc(good, bad):
    """How often a good answer scores above a bad one, ties counted half; None where either is missing."""
    if not good or not bad:
        return None
    order = sorted([(score, 1) for score in good] + [(score, 0) for score in bad])
    ranks, i = 0.0, 0
    while i < len(order):
        j = i
        while j < len(order) and order[j][0] == order[i][0]:
            j += 1
        # Equal scores share the mean of their ranks.
        ranks += sum(is_good for _, is_good in order[i:j]) * (i + j + 1) / 2
        i = j
    return round((ranks - len(good) * (len(good) + 1) / 2) / (len(good) * len(bad)), DIGITS)


def share(part, whole):
    """A rounded share; None of nothing."""
    return round(part / whole, DIGITS) if whole else None


def summary(rows):
    """Counts of one kind of request."""
    found = {"n": len(rows), "exact": share(sum(row.exact for row in rows), len(rows))}
    wanting = [row for row in rows if row.wanted]
    if wanting:
        right = [names(row.calls) == names(row.wanted) for row in wanting]
        found["right_tool_names"] = share(sum(right), len(wanting))
        found["no_call_though_wanted"] = share(sum(row.calls == [] for row in wanting), len(wanting))
    if len(wanting) < len(rows):
        silent = [row for row in rows if not row.wanted]
        found["call_though_none_wanted"] = share(sum(row.calls != [] for row in silent), len(silent))
    return found


def names(calls):
    """The tools that are called."""
    return [call.get("name") for call in calls or [] if isinstance(call, dict)]


def routing(rows):
    """What a router needs to know: how well the score sorts, and what risk each threshold leaves."""
    calling = [row for row in rows if row.calls]
    return {
        **summary(rows),
        "auc_all": sorting(rows),
        "auc_calls": sorting(calling),
        "risk_coverage": [risk(rows, at, ground=ground) for ground in (False, True) for at in THRESHOLDS],
    }


def sorting(rows):
    """The AUC of the confidence."""
    return auc([row.confidence for row in rows if row.exact], [row.confidence for row in rows if not row.exact])


def risk(rows, threshold, *, ground):
    """What is answered at a threshold, with or without the grounding check, and how much of it is wrong."""
    wanted = sum(bool(row.wanted) for row in rows)
    kept = [
        row for row in rows if row.calls and row.valid and (row.grounded or not ground) and row.confidence >= threshold
    ]
    wrong = sum(not row.exact for row in kept)
    return {
        "threshold": threshold,
        "grounding": ground,
        "answered": len(kept),
        "coverage": share(len(kept), len(rows)),
        "right_of_wanted": share(len(kept) - wrong, max(1, wanted)),
        "error_among_answered": share(wrong, len(kept)),
    }
