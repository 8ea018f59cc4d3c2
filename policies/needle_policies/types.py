"""What a policy sees and what it says: plain frozen values of the standard library, so a policy is testable alone.

A policy is asked twice. Before the engine runs, `plan` sees the request's `Features` and the `Situation`; after it ran,
`judge` sees the `Evidence` as well. Each answers with an action and a reason slug, or with None: no opinion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Plan(StrEnum):
    """What to do with a request before the engine has seen it."""

    FORWARD = "forward"
    TRY_LOCAL = "try-local"
    SHADOW = "shadow"
    #: As TRY_LOCAL, with the upstream asked at the same time.
    RACE = "race"
    #: Answer with the plan's own text; nobody is asked.
    REPLY = "reply"


#: Which plans run the engine at all.
NEEDS_ENGINE = {Plan.FORWARD: False, Plan.TRY_LOCAL: True, Plan.SHADOW: True, Plan.RACE: True, Plan.REPLY: False}


class Action(StrEnum):
    """What to do once the evidence is in."""

    ANSWER = "answer"
    FORWARD = "forward"
    MERGE = "merge"
    #: Forward, and compare the answers afterwards.
    SHADOW = "shadow"
    #: Neither: the request is refused. Only the last word of a `budget` says so.
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave: the call's name, its arguments as JSON text, and the result's text, as the client sent them."""

    name: str
    arguments: str
    text: str


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of a request without running anything.

    `tool_names` are the tools that may be called, in the client's order; `obstacles` are reason slugs of things only
    an upstream can serve, found while parsing (`media-input`, `many-choices`, ...). `prompt_tokens` counts what the
    engine would read: facts, tools and the user's text. `extraction` is true for `response_format` json_schema without
    tools. `clauses` is the number of separate wishes the user's text seems to hold. `conversation` is the same text for
    every turn of a conversation, `turn` for every repetition of this one. `fingerprint` names schemas, prompt, engine
    and session mode; "" unless a policy reads it (`wants_fingerprint`). `tool_risks` runs along `tool_names`: what each
    tool's schema declares, "" for nothing; empty when none declares anything. `results` are the tool results that the
    request ends in, where nothing but words about them is asked for.
    """

    has_tools: bool = False
    tool_names: tuple[str, ...] = ()
    tool_choice: str = "auto"
    parallel: bool = True
    extraction: bool = False
    json_object: bool = False
    last_role: str = "user"
    user_chars: int = 0
    prompt_tokens: int = 0
    tokens_exact: bool = False
    clauses: int = 1
    stream: bool = False
    obstacles: tuple[str, ...] = ()
    conversation: str = ""
    turn: str = ""
    tool_risks: tuple[str, ...] = ()
    fingerprint: str = ""
    results: tuple[Result, ...] = ()

    def risk_of(self, name: str) -> str:
        """What the tool's own schema says of its risk: read, write or never; "" where it says nothing."""
        return next((risk for tool, risk in zip(self.tool_names, self.tool_risks, strict=False) if tool == name), "")

    def risks_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """What the schemas of these tools say of their risk; () where none says anything."""
        return tuple(risk for name in names if (risk := self.risk_of(name))) if self.tool_risks else ()


@dataclass(frozen=True, slots=True)
class Standing:
    """How a tool has done under a request's fingerprint: steps that its canary was promoted by, and a raised alarm."""

    level: int = 0
    alarm: bool = False


NO_STANDINGS: Mapping[str, Standing] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Situation:
    """The world outside the request, measured by the shell: no policy reads a clock or a counter itself.

    `usd_today` and `usd_month` are upstream spend in USD, None when unknown. `now_s` is Unix time in seconds.
    `acceptance` is the share of the recent answers for this set of tools that was used, None when there was none yet,
    and `attempts` their number. `standings` holds what comparisons have shown of the offered tools, by name.
    `hypothetical` is true when nobody acts on the answer: what would be said if nothing were only watched?
    """

    mode: str = "on"
    engine_state: str = "ready"
    queue_depth: int = 0
    queue_limit: int = 32
    upstream_healthy: bool = True
    usd_today: float | None = None
    usd_month: float | None = None
    now_s: float = 0.0
    acceptance: float | None = None
    attempts: int = 0
    standings: Mapping[str, Standing] = field(default_factory=lambda: NO_STANDINGS)
    hypothetical: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the engine said and what the verifiers found.

    `failures` are the reason slugs of failed checks, most decisive first: an engine failure, `no-call`, `negated`,
    `ungrounded`, `unknown-tool`, `invalid-arguments`, ... Empty means that every check passed. `confidence` is None
    when the engine gave none: unknown is not certain. `uncovered` is true when a clause of the request is covered by
    none of the calls.
    """

    calls: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    confidence: float | None = None
    uncovered: bool = False

    @property
    def verified(self) -> bool:
        """At least one call, and nothing found against any."""
        return bool(self.calls) and not self.failures


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, its reason slug, the name of the policy that spoke, and the answer of a REPLY."""

    plan: Plan
    reason: str
    policy: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """An action, its reason slug and the name of the policy that spoke."""

    action: Action
    reason: str
    policy: str = ""
