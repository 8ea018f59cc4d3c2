"""How sure the engine must be, by what a call can break: reading is cheap to repeat, writing is not, and some never.

Only tightens: a call that reaches the minimum of its class is left to the policies after this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from needle_policies.patterns import matches
from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation

READ, WRITE, NEVER = "read", "write", "never"
#: Strictest last.
CLASSES = (READ, WRITE, NEVER)
_READING = ("get", "list", "search", "find", "read", "fetch", "query", "lookup", "show", "describe", "count")
_READS = tuple(f"{verb}{rest}" for verb in _READING for rest in ("", "_*", "-*", "[A-Z]*"))
_WRITES = ("*_and_*", "*_or_*")
_NEVERS = ("delete_*", "delete[A-Z]*", "drop_*", "wipe_*", "pay_*", "*_payment", "*_payments", "transfer_*", "*_money")


@dataclass(frozen=True, slots=True)
class SideEffects:
    """`read`, `write` and `never` are patterns of tool names; a name that none fits is `write`.

    Where a name fits several, the strictest counts. A tool's own `x-needle-risk` decides where no pattern fits, and
    can only tighten where one does: whoever may send a request must not loosen what the operator wrote. `read_error`
    and `write_error` are the shares of wrong calls that `calibrate --by-risk` certifies.
    """

    read: tuple[str, ...] = _READS
    write: tuple[str, ...] = _WRITES
    never: tuple[str, ...] = _NEVERS
    read_minimum: float = 0.8
    write_minimum: float = 0.95
    read_error: float = 0.05
    write_error: float = 0.01
    kind: str = "side-effects"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """FORWARD when no tool on offer may be answered here."""
        if features.extraction or not features.tool_names:
            return None
        if all(self.risk(features, name) == NEVER for name in features.tool_names):
            return Planned(Plan.FORWARD, "risk-never", self.kind)
        return None

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """FORWARD when a call is riskier than its score allows."""
        if features.extraction or not evidence.calls:
            return None
        reason = self.objection({self.risk(features, name) for name in evidence.calls}, evidence.confidence)
        return None if reason is None else Decision(Action.FORWARD, reason, self.kind)

    def objection(self, risks: set[str], confidence: float | None) -> str | None:
        """Why calls of these classes may not be answered with this score, or None."""
        if NEVER in risks:
            return "risk-never"
        if confidence is None:
            return "confidence-unknown"
        wanted = max(self.write_minimum if risk == WRITE else self.read_minimum for risk in risks)
        return "below-risk" if confidence < wanted else None

    def risk(self, features: Features, name: str) -> str:
        """The class of a tool."""
        return self.risk_of(name, features.risk_of(name))

    def risk_of(self, name: str, marked: str) -> str:
        """The class of a tool whose schema declares `marked`, "" for nothing."""
        named = next((risk for risk in reversed(CLASSES) if matches(name, getattr(self, risk))), None)
        if named is None:
            return marked or WRITE
        return max(named, marked or named, key=CLASSES.index)

    def error_of(self, risk: str) -> float | None:
        """The share of wrong calls that may be certified for a class, None for `never`."""
        return {READ: self.read_error, WRITE: self.write_error}.get(risk)
