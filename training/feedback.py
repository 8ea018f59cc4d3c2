"""What the exported model says about itself: its own mistakes as training data, and a rescaled confidence."""

import json
import math

import jax
import needle_rs
import numpy as np
from needle.model.architecture import effective_kv_window
from needle.model.export import write_export
from training.network import BITS

KEEP_RIGHT = 0.25
MAX_NEW_TOKENS = 110
NEWTON_STEPS = 50
DAMPING = 1e-2
#: A head that knows nothing would otherwise be flattened to one value.
LEAST_SCALE = 0.2


def export(params, config, tokenizer, path):
    """Write a `.cact` file."""
    params = jax.tree_util.tree_map(lambda array: np.asarray(array, np.float32), params)
    window = effective_kv_window(config)
    return write_export(params, config, str(path), bits=BITS, tokenizer=tokenizer, kv_window=window)


def compact(tools):
    """Tool declarations as the engine reads them."""
    return json.dumps(tools, separators=(",", ":"), ensure_ascii=False)


def answer(engine, example, temperature=0.0, seed=0):
    """(text, exact?) of the exported model for one example, with constrained decoding as in use."""
    out = engine.generate(
        example["query"],
        compact(example["tools"]),
        max_new_tokens=MAX_NEW_TOKENS,
        temperature=temperature,
        seed=seed,
        system=example.get("system"),
        constrain=True,
    )
    try:
        return out["text"], json.loads(out["tool_call"]) == example["answers"]
    except (TypeError, ValueError):
        return out["text"], False


def collect(path, generator, *, seed, count):
    """(labelled answers, share of exact greedy ones): every second answer is sampled; of right ones a part is kept."""
    engine, source = needle_rs.V2Engine.load(str(path)), generator(seed)
    pool, greedy = [], []
    for i in range(count):
        example = source.example()
        sampled = bool(i % 2)
        text, exact = answer(engine, example, 0.9 if sampled else 0.0, i)
        if not sampled:
            greedy.append(exact)
        if not exact or source.r.random() < KEEP_RIGHT:
            pool.append((example, text, exact))
    return pool, sum(greedy) / max(1, len(greedy))


def calibrate(path, params, generator, *, seed, count):
    """(params, (scale, bias)): Platt scaling of the confidence logit on fresh outputs of the exported file.

    Half of the examples have unseen words, where the generator knows such a split.
    """
    engine, splits = needle_rs.V2Engine.load(str(path)), generator.SPLITS[:2]
    logits, exact = [], []
    for i in range(count):
        example = generator(seed + i, splits[i % len(splits)]).example()
        text, right = answer(engine, example)
        score = engine.confidence_for(example["query"], compact(example["tools"]), text)
        score = min(max(score, 1e-6), 1 - 1e-6)
        logits.append(math.log(score / (1 - score)))
        exact.append(right)
    scale, bias = platt(np.array(logits), np.array(exact, float))
    projection = params["confidence_head"]["proj"]
    head = {"kernel": projection["kernel"] * scale, "bias": projection["bias"] * scale + bias}
    return {**params, "confidence_head": {**params["confidence_head"], "proj": head}}, (scale, bias)


def platt(logits, right):
    """(scale, bias) of the logistic fit, by lightly damped Newton steps."""
    w = np.array([1.0, 0.0])
    for _ in range(NEWTON_STEPS):
        p = 1 / (1 + np.exp(-(w[0] * logits + w[1])))
        gradient = np.array([((p - right) * logits).sum(), (p - right).sum()]) + DAMPING * (w - [1, 0])
        s = p * (1 - p)
        cross = (s * logits).sum()
        hessian = np.array([[(s * logits * logits).sum(), cross], [cross, s.sum()]]) + DAMPING * np.eye(2)
        w = w - np.linalg.solve(hessian, gradient)
    return max(w[0], LEAST_SCALE), w[1]
