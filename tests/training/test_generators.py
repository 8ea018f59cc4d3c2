"""The generators: the same seed makes the same examples, and every expected call fits its declaration."""

import os
import random
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
from training.generators import GENERATORS
from training.generators.mistakes import corrupt
from training.generators.narrow import CITIES, ROOMS
from training.generators.words import ITEMS, held_out

ROOT = Path(__file__).resolve().parents[2]
SPLITS = [(name, part) for name, generator in GENERATORS.items() for part in generator.SPLITS]
KINDS = [(name, kind) for name, generator in GENERATORS.items() for kind in generator.KINDS]
NO_CALL = {"chat", "remark", "unserved", "missing"}


def examples(name, count, *, seed=7, part="train", kind=None):
    generator = GENERATORS[name](seed, part)
    return [generator.example(kind) for _ in range(count)]


@pytest.mark.parametrize(("name", "part"), SPLITS)
def test_the_same_seed_makes_the_same_examples(name, part):
    assert examples(name, 100, part=part) == examples(name, 100, part=part)


DIGEST = """
import hashlib, json
from training.generators import GENERATORS
for name, kind in GENERATORS.items():
    for part in kind.SPLITS:
        source = kind(7, part)
        drawn = json.dumps([source.example() for _ in range(300)])
        print(name, part, hashlib.sha256(drawn.encode()).hexdigest())
"""


def test_the_same_seed_makes_the_same_examples_in_every_process():
    def drawn(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], cwd=ROOT, env=environment, capture_output=True, timeout=60, check=True
        )
        return done.stdout.decode().splitlines()

    assert len(drawn("1")) == len(SPLITS)
    assert drawn("1") == drawn("2")


@pytest.mark.parametrize("name", GENERATORS)
def test_another_seed_makes_other_examples(name):
    assert examples(name, 20, seed=1) != examples(name, 20, seed=2)


def test_the_first_narrow_example_of_a_seed_is_this_one():
    first = GENERATORS["narrow"](3).example()
    assert first["query"] == "set porch brightness to 17 percent"


@pytest.mark.parametrize(("name", "part"), SPLITS)
def test_every_expected_call_names_a_declared_tool_and_fits_its_schema(name, part):
    for example in examples(name, 300, part=part):
        declared = {tool["name"]: tool["parameters"] for tool in example["tools"]}
        for call in example["answers"]:
            assert jsonschema_rs.is_valid(declared[call["name"]], call["arguments"]), example


@pytest.mark.parametrize(("name", "part"), SPLITS)
def test_tools_have_names_of_their_own_and_their_keys_in_order(name, part):
    for example in examples(name, 200, part=part):
        names = [tool["name"] for tool in example["tools"]]
        assert 1 <= len(names) == len(set(names)) <= 5
        assert all(list(tool) == ["name", "description", "parameters"] for tool in example["tools"])


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_kind_that_wants_no_call_has_none(name, kind):
    wanted = [bool(example["answers"]) for example in examples(name, 60, kind=kind)]
    assert any(wanted) is (kind not in NO_CALL)


def test_the_broad_generator_calls_twice_for_two_rooms():
    example = next(e for e in examples("broad", 50, kind="spread") if len(e["answers"]) == 2)
    assert example["answers"][0]["name"] == example["answers"][1]["name"]


def test_the_narrow_generator_knows_no_other_place():
    for example in examples("narrow", 300):
        for call in example["answers"]:
            assert call["arguments"].get("room", ROOMS[0]) in ROOMS
            assert call["arguments"].get("city", CITIES[0]) in CITIES


def test_the_narrow_generator_has_no_unseen_words():
    with pytest.raises(ValueError, match="no split 'slots'"):
        GENERATORS["narrow"](1, "slots")


def test_words_are_held_out_and_some_are_left():
    out = [word for word in ITEMS if held_out(word)]
    assert 0 < len(out) < len(ITEMS) / 3


@pytest.mark.parametrize("name", GENERATORS)
def test_corrupted_answers_are_nearly_always_wrong_and_call_declared_tools(name):
    r = random.Random(5)
    wrong = 0
    for example in examples(name, 300):
        spoiled = corrupt(r, example)
        wrong += spoiled != example["answers"]
        assert {call["name"] for call in spoiled} <= {tool["name"] for tool in example["tools"]}
    assert wrong >= 285


def test_corrupting_leaves_the_example_alone():
    (example,) = examples("broad", 1, kind="single")
    before = [dict(call["arguments"]) for call in example["answers"]]
    corrupt(random.Random(1), example)
    assert [call["arguments"] for call in example["answers"]] == before
