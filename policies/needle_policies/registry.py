"""From `[[policy]]` tables to policies: short name -> class, options checked, every problem reported at once.

Others add kinds through the entry-point group `needle_router.policies`: the entry's name is the kind, its object a
dataclass that satisfies `Policy`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from needle_policies.adaptive import Adaptive
from needle_policies.audit import Audit
from needle_policies.base import Policy
from needle_policies.budget import Budget
from needle_policies.canary import Canary
from needle_policies.cascade import Cascade
from needle_policies.certified import Certificates
from needle_policies.guards import Guards
from needle_policies.merge import Merge
from needle_policies.patterns import compiled
from needle_policies.race import Race
from needle_policies.replies import Replies
from needle_policies.shadow import Shadow
from needle_policies.sideeffects import SideEffects
from needle_policies.templates import pieces
from needle_policies.threshold import NEVER, Threshold

NO_CERTIFICATES: Mapping[str, Certificates] = MappingProxyType({})
ENTRY_POINT_GROUP = "needle_router.policies"
BUILT_IN: Mapping[str, type[Policy]] = MappingProxyType(
    {
        "guards": Guards,
        "side-effects": SideEffects,
        "shadow": Shadow,
        "canary": Canary,
        "adaptive": Adaptive,
        "budget": Budget,
        "race": Race,
        "audit": Audit,
        "replies": Replies,
        "threshold": Threshold,
    }
)
#: Fields that no table may set: the kind's own name, and what the builder puts in.
INTERNAL = frozenset({"kind", "inner", "certified"})


class PolicyError(ValueError):
    """A `[[policy]]` table that cannot be used; `problems` holds one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def kinds() -> dict[str, type[Policy]]:
    """Every kind that can be named: the built-in ones and those of installed packages."""
    found: dict[str, type[Policy]] = dict(BUILT_IN)
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(entry.name, entry.load())
    return found


def problems(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the tables, each line with its key path; empty when they can be built."""
    known = kinds()
    found = [line for index, table in enumerate(tables) for line in _table_problems(f"policy[{index}]", table, known)]
    return found or _two_tests(tables)


def _two_tests(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was shown of a tool is kept once, so two canaries cannot both be tested."""
    tested = [index for index, table in enumerate(tables) if table["kind"] == "canary" and table.get("max_error")]
    return [f"policy[{index}].max_error: policy[{tested[0]}] has one, and only one can" for index in tested[1:]]


def build(
    tables: Sequence[Mapping[str, Any]],
    merge: Merge | None = None,
    certificates: Mapping[str, Certificates] = NO_CERTIFICATES,
) -> Cascade:
    """The cascade of the tables, with everything after the guards inside `merge` when it is given.

    `certificates` holds what stands in the files that `threshold` tables name, by their paths. Raises `PolicyError`.
    """
    wrong = problems(tables) or _not_read(tables, certificates)
    if wrong:
        raise PolicyError(wrong)
    known = kinds()
    policies = [_certified(known[table["kind"]](**_options(table)), certificates) for table in tables]
    policies = _with_followers(policies)
    last = [policy for policy in policies if isinstance(policy, Budget)]
    audits = [policy for policy in policies if isinstance(policy, Audit)]
    # Before the guards, which forward every turn that a reply could be for.
    replies = [policy for policy in policies if isinstance(policy, Replies)]
    others = [policy for policy in policies if not isinstance(policy, Replies)]
    if merge is None or merge.when == "never":
        return Cascade([*replies, *others], last, audits)
    guards = [policy for policy in others if isinstance(policy, Guards)]
    rest = tuple(policy for policy in others if not isinstance(policy, Guards))
    return Cascade([*replies, *guards, dataclasses.replace(merge, inner=rest)], last, audits)


def _with_followers(policies: list[Policy]) -> list[Policy]:
    """Each budget with the policies after it, whose minimum it may lower, and each race, whose plans it asks for."""
    return [
        dataclasses.replace(policy, inner=tuple(policies[index + 1 :]))
        if isinstance(policy, (Budget, Race))
        else policy
        for index, policy in enumerate(policies)
    ]


def _not_read(tables: Sequence[Mapping[str, Any]], certificates: Mapping[str, Certificates]) -> list[str]:
    return [
        f"policy[{index}].certificates: {table['certificates']} has not been read"
        for index, table in enumerate(tables)
        if table["kind"] == "threshold" and table.get("certificates") and table["certificates"] not in certificates
    ]


def _certified(policy: Policy, certificates: Mapping[str, Certificates]) -> Policy:
    """A threshold that names a file, with what the file holds."""
    if isinstance(policy, Threshold) and policy.certificates:
        return dataclasses.replace(policy, certified=certificates[policy.certificates])
    return policy


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items() if key != "kind"}


def _table_problems(path: str, table: Mapping[str, Any], known: Mapping[str, type[Policy]]) -> list[str]:
    kind = table.get("kind")
    if not isinstance(kind, str):
        return [f"{path}.kind: missing; the kinds are {', '.join(sorted(known))}"]
    if kind not in known:
        return [
            f"{path}.kind: unknown kind {kind!r}{_did_you_mean(kind, known)}; the kinds are {', '.join(sorted(known))}"
        ]
    cls = known[kind]
    fields = {f.name for f in dataclasses.fields(cls) if f.name not in INTERNAL}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    found = []
    for key, value in table.items():
        if key == "kind":
            continue
        if key not in fields:
            found.append(f"{path}.{key}: unknown option of {kind}{_did_you_mean(key, fields)}")
        else:
            found += _value_problems(f"{path}.{key}", value, hints[key])
    return found or _contradictions(path, table, cls)


def _contradictions(path: str, table: Mapping[str, Any], cls: type[Policy]) -> list[str]:
    """Options that are good one by one and do not fit together; kinds that have such say so."""
    try:
        policy = cls(**_options(table))
    # A third party may ask for options that have no default, or check them as it is made.
    except (TypeError, ValueError) as error:
        return [f"{path}: no {table['kind']} can be made of these options: {error}"]
    find = getattr(policy, "contradictions", None)
    return [] if find is None else [f"{path}.{line}" for line in find()]


def _did_you_mean(word: str, known: typing.Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def _value_problems(path: str, value: Any, hint: Any) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        known = typing.get_args(hint)
        return [] if value in known else [f"{path}: {value!r} is none of {', '.join(map(repr, known))}"]
    check = _CHECKS.get(hint)
    return check(path, value) if check is not None else []


def _text(path: str, value: Any) -> list[str]:
    return [] if isinstance(value, str) else [f"{path}: {value!r} is not a text"]


def _whole(path: str, value: Any) -> list[str]:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return [] if good else [f"{path}: {value!r} is not a whole number of at least 1"]


def _share(path: str, value: Any) -> list[str]:
    return [] if _is_share(value) else [f"{path}: {value!r} is not a number from 0 to 1"]


def _number_list(path: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        return [f"{path}: {value!r} is not a list of numbers from 0 to 1"]
    return [line for index, one in enumerate(value) for line in _share(f"{path}[{index}]", one)]


def _amount(path: str, value: Any) -> list[str]:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
    return [] if good else [f"{path}: {value!r} is not an amount of at least 0"]


def _patterns(path: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        return [f"{path}: {value!r} is not a list of patterns"]
    return [line for one in value for line in _pattern(path, one)]


def _pattern(path: str, pattern: str) -> list[str]:
    try:
        compiled(pattern)
    except re.error as error:
        return [f"{path}: {pattern!r} is no regular expression: {error}"]
    return []


def _minimums(path: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path}: {value!r} is not a table of tool names"]
    return [
        f'{path}.{name}: {minimum!r} is neither a number from 0 to 1 nor "never"'
        for name, minimum in value.items()
        if minimum != NEVER and not _is_share(minimum)
    ]


def _shares(path: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path}: {value!r} is not a table of tool names"]
    return [line for name, share in value.items() for line in _share(f"{path}.{name}", share)]


def _templates(path: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path}: {value!r} is not a table of tool names"]
    return [line for name, template in value.items() for line in _template(f"{path}.{name}", template)]


def _template(path: str, template: Any) -> list[str]:
    if not isinstance(template, str) or not template.strip():
        return [f"{path}: {template!r} is no sentence"]
    try:
        list(pieces(template))
    except ValueError as error:
        return [f"{path}: {template!r}: {error}; write {{{{ and }}}} for braces"]
    return []


#: The type of an option -> what its value must satisfy. Options of other types are their policy's own business.
_CHECKS: Mapping[Any, Callable[[str, Any], list[str]]] = MappingProxyType(
    {
        str: _text,
        int: _whole,
        float: _share,
        float | None: _amount,
        tuple[str, ...]: _patterns,
        tuple[float, ...]: _number_list,
        Mapping[str, float]: _shares,
        Mapping[str, str]: _templates,
        Mapping[str, float | typing.Literal["never"]]: _minimums,
    }
)


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
