"""BFCL, the Berkeley Function Calling Leaderboard, from an installed bfcl-eval, graded with its own checker.

The declarations are turned into JSON Schema: BFCL writes the types of Python (`dict`, `float`, `tuple`, `any`), and its
names hold dots, which OpenAI's API does not take. Its checker folds the names in the same way. Only the categories
whose answers are JSON values are read: those for Java and JavaScript expect source text, the rest are conversations.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from needle_router.replay.cases import Case, SourceProblem, request_body
from needle_router.replay.grading import AnyCall, Checked, TheseCalls, Wanted
from needle_router.turn import Call

CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance",
)  # fmt: skip
#: Categories without possible answers: all that is known is whether a call is wanted.
NO_CALL = frozenset({"irrelevance", "live_irrelevance"})
A_CALL = frozenset({"live_relevance"})
TYPES: Mapping[str, str] = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "any": "string",
}
INSTALL = "pip install --no-deps bfcl-eval (without --no-deps it brings some thirty clients of model providers)"
#: The checker looks up how a model writes names; this one writes underscores for dots.
GRADED_AS = "replay"
_MODELS = "bfcl_eval.constants.model_config"


def bfcl() -> Iterator[Case]:
    """Every case of `CATEGORIES`. Raises SourceProblem where bfcl-eval is missing or of another version."""
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        raise SourceProblem(f"the package bfcl-eval is not installed: {INSTALL}")
    # Asked for at once: a checker that cannot be used must not show in the middle of a run.
    checker()
    folder = Path(spec.origin).parent / "data"
    for category in CATEGORIES:
        try:
            yield from read_category(folder, category)
        except FileNotFoundError as error:
            raise SourceProblem(f"this version of bfcl-eval has no {error.filename}") from None


def read_category(folder: Path, category: str) -> Iterator[Case]:
    """The cases of one category from BFCL's data folder."""
    name = f"BFCL_v4_{category}.json"
    answers = {}
    if category not in NO_CALL | A_CALL:
        answers = {row["id"]: row["ground_truth"] for row in _rows(folder / "possible_answer" / name)}
    for row in _rows(folder / name):
        # A single turn: the first and only list of messages.
        body = request_body(row["question"][0], [declaration(function) for function in row["function"]])
        yield Case(row["id"], category, body, _wanted(category, row["function"], answers.get(row["id"])))


def _rows(file: Path) -> list[dict[str, Any]]:
    with file.open("rb") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def declaration(function: Mapping[str, Any]) -> dict[str, Any]:
    """A BFCL function as a flat declaration."""
    return {
        "name": underscored(function["name"]),
        "description": function.get("description", ""),
        "parameters": as_schema(function["parameters"]),
    }


def underscored(name: str) -> str:
    """A name that OpenAI's API takes."""
    return name.replace(".", "_")


def as_schema(shape: Any) -> Any:
    """JSON Schema of a BFCL parameter; `optional` is a mark of BFCL's own."""
    if isinstance(shape, list):
        return [as_schema(item) for item in shape]
    if not isinstance(shape, dict):
        return shape
    found = {key: value for key, value in shape.items() if key != "optional"}
    if isinstance(found.get("type"), str):
        found["type"] = TYPES.get(found["type"], found["type"])
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = as_schema(found[key])
    if isinstance(found.get("properties"), dict):
        found["properties"] = {name: as_schema(inner) for name, inner in found["properties"].items()}
    return found


def _wanted(category: str, functions: Sequence[Mapping[str, Any]], answer: Any) -> Wanted:
    if category in NO_CALL:
        return TheseCalls(())
    if category in A_CALL:
        return AnyCall()
    return Checked(partial(_accepted, category, functions, answer))


def _accepted(category: str, functions: Sequence[Mapping[str, Any]], answer: Any, calls: Sequence[Call]) -> bool:
    """The word of BFCL's checker."""
    check, language = checker()
    output = [{call.name: dict(call.arguments)} for call in calls]
    try:
        result = check(list(functions), output, answer, language.PYTHON, category, GRADED_AS)
    # The checker stumbles over values of types that it does not expect; none of those is a right answer.
    except (TypeError, KeyError, AttributeError, IndexError, ValueError):
        return False
    return bool(result["valid"])


@cache
def checker() -> tuple[Any, Any]:
    """BFCL's AST checker and its `Language`. Raises SourceProblem where this version has them elsewhere."""
    if _MODELS not in sys.modules:
        # The real module imports the client of every provider; the checker wants one flag of it.
        stub = types.ModuleType(_MODELS)
        stub.MODEL_CONFIG_MAPPING = {GRADED_AS: types.SimpleNamespace(underscore_to_dot=True)}  # type: ignore[attr-defined]
        sys.modules[_MODELS] = stub
    try:
        ast_checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
        enums = importlib.import_module("bfcl_eval.constants.enums")
        return ast_checker.ast_checker, enums.Language
    except (ImportError, AttributeError) as error:
        raise SourceProblem(f"the checker of this version of bfcl-eval cannot be used ({error}): {INSTALL}") from None
