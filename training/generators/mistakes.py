"""Wrong answers that look right: what the confidence head learns to tell from right ones."""

import json

from training.generators.words import NOUNS, ROOMS, made_up

#: Shares of an answer with calls: dropped whole, another tool, one call too few or too many; the rest: one argument.
DROPPED, OTHER_TOOL, MISCOUNTED = 0.12, 0.22, 0.32
ATTEMPTS = 20


def corrupt(r, example):
    """A realistic wrong answer for an example; now and then no change is found and it comes back as it was."""
    calls = json.loads(json.dumps(example["answers"]))
    words = [word.strip(".,?!:") for word in example["query"].split() if len(word) > 2] or ["it"]
    tools = example["tools"]
    if not calls:
        return [invented(r, r.choice(tools), words)]
    k = r.random()
    if k < DROPPED:
        return []
    if k < OTHER_TOOL and len(tools) > 1:
        i = r.randrange(len(calls))
        calls[i] = invented(r, r.choice([tool for tool in tools if tool["name"] != calls[i]["name"]]), words)
        return calls
    if k < MISCOUNTED:
        return calls[:-1] if len(calls) > 1 else [*calls, invented(r, r.choice(tools), words)]
    return with_changed_argument(r, calls, tools, words)


def invented(r, tool, words):
    """A call of `tool` with values from the request's words or from nowhere."""
    parameters = tool["parameters"]
    required = parameters.get("required", [])
    arguments = {
        key: plausible(r, schema, words)
        for key, schema in parameters["properties"].items()
        if key in required or r.random() < 0.3
    }
    return {"name": tool["name"], "arguments": arguments}


def plausible(r, schema, words):
    """A value of the schema's type."""
    if "enum" in schema:
        return r.choice(schema["enum"])
    if schema["type"] == "boolean":
        return r.random() < 0.5
    if schema["type"] == "string":
        return " ".join(r.sample(words, min(len(words), r.choice((1, 1, 2)))))
    return r.choice([int(word) for word in words if word.isdigit()] or [r.randint(1, 99)])


def with_changed_argument(r, calls, tools, words):
    """The calls with one argument changed; no calls where there is nothing to change."""
    call = r.choice(calls)
    schema = next(tool for tool in tools if tool["name"] == call["name"])["parameters"]["properties"]
    if not call["arguments"]:
        return []
    key = r.choice(list(call["arguments"]))
    old = call["arguments"][key]
    for _ in range(ATTEMPTS):
        new = another(r, old, schema[key], words)
        if new != old:
            call["arguments"][key] = new
            return calls
    return []


def another(r, old, schema, words):
    """A value near `old`: the other way round, a digit off, another member, words swapped, added or cut."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return r.choice((old + r.randint(1, 9), old * 10, old // 10, r.randint(1, 99)))
    if "enum" in schema:
        return r.choice(schema["enum"])
    parts = old.split()
    j = r.randrange(len(parts))
    swap = r.choice((r.choice(ROOMS), made_up(r), r.choice(words), r.choice(NOUNS)))
    return r.choice(
        (
            " ".join([*parts[:j], swap, *parts[j + 1 :]]),
            " ".join(parts[:-1]) or swap,
            old + " " + r.choice(words),
            swap,
            old[: max(1, len(old) - 2)],
        )
    )
