"""From `[[policy]]` tables to policies: short name -> class, options checked, every problem reported at once.

Others add kinds through the entry-point group `needle_router.policies`: the entry's name is the kind, its object a
dataclass that satisfies `Policy`.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping, Sequence
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
from needle_policies.options import value_problems
from needle_policies.race import Race
from needle_policies.replies import Replies
from needle_policies.shadow import Shadow
from needle_policies.sideeffects import SideEffects
from needle_policies.threshold import Threshold

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
            found += value_problems(f"{path}.{key}", value, hints[key])
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
