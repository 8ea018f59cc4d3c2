"""What the router would do with a request, and why: the server's own steps, with nobody to answer.

Where the server would ask the upstream or send an answer, this says so. The engine runs if it would run for the answer.
A race is told by what the engine's leg would come to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from needle_policies import Action
from needle_router.build import build, wait_until_loaded
from needle_router.config.schema import Config
from needle_router.errors import RouterError, envelope
from needle_router.observe import Header
from needle_router.pipeline import Verdict
from needle_router.services import Services
from needle_router.serving.auditing import audit_of
from needle_router.serving.incoming import limits_of, mode_of
from needle_router.serving.routing import BAD_OVERRIDE, races, unread_verdict, unreadable_body
from needle_router.surfaces.chat import Unreadable, parse
from needle_router.turn import Turn

ROUTES = {Action.ANSWER: "local", Action.MERGE: "merged", Action.FORWARD: "upstream", Action.REFUSE: "local"}


async def explain(
    config: Config, raw: bytes, *, headers: Sequence[Header] = (), environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """What would become of a chat completion with this body and these headers; starts the engine and stops it again."""
    services = build(config, upstream=bool(config.upstream.base_url), environ=environ, may_fetch=False)
    if services.ledger.path is not None:
        services.spend.load(services.ledger.path)
    services.standings.load()
    await services.engine.start()
    try:
        await wait_until_loaded(services.engine)
        return await explained(services, raw, headers)
    finally:
        await services.engine.aclose()


async def explained(services: Services, raw: bytes, headers: Sequence[Header] = ()) -> dict[str, Any]:
    """As `explain`, with parts that run already."""
    mode = mode_of(headers, configured=services.config.mode)
    try:
        unread = unread_verdict(headers, mode, upstream=services.upstream)
        if unread is not None:
            return explanation(services.pipeline.settled(unread))
        parsed = parse(raw)
        if isinstance(parsed, Unreadable):
            return unreadable(services, parsed)
        if not services.upstream or parsed.model in services.local_models:
            return await alone(services, parsed)
    except RouterError as error:
        reason = "local-model" if services.upstream else "no-upstream"
        return {"route": "local", "reason": reason, "error": envelope(error)["error"]}
    return await routed(services, parsed, mode, headers)


def unreadable(services: Services, found: Unreadable) -> dict[str, Any]:
    """What becomes of a body that cannot be read."""
    if not services.upstream:
        error = envelope(unreadable_body(found))["error"]
        return {"route": "local", "reason": found.reason, "detail": found.detail, "error": error}
    verdict = services.pipeline.settled(Verdict(Action.FORWARD, found.reason))
    return explanation(verdict) | {"detail": found.detail}


async def routed(services: Services, turn: Turn, mode: str, headers: Sequence[Header]) -> dict[str, Any]:
    """What the policies make of it."""
    pipeline, limits = services.pipeline, limits_of(headers)
    if limits is None:
        return explanation(pipeline.settled(BAD_OVERRIDE))
    verdict = await pipeline.decide(turn, mode, limits=limits)
    shown = explanation(verdict)
    if verdict.prepared is not None and verdict.prepared.turn.has_tools:
        shown["fingerprint"] = pipeline.fingerprint(verdict.prepared)
    # A race asks the upstream in any case, so there is nothing left to audit.
    shown["raced"] = verdict.prepared is not None and races(pipeline, verdict.prepared)
    shown["audited"] = not shown["raced"] and audit_of(pipeline, verdict) is not None
    if verdict.reason == "engine-off":
        shown["engine_detail"] = services.engine.health().detail
    return shown


async def alone(services: Services, turn: Turn) -> dict[str, Any]:
    """Where Needle answers whatever it can and refuses the rest; raises `RouterError` for that."""
    reason = "local-model" if services.upstream else "no-upstream"
    answered = await services.alone.answer(turn, services.stamp(), reason=reason, show=True)
    attempt = answered.attempt
    return explanation(Verdict(Action.ANSWER, reason, "", prepared=attempt.prepared, attempt=attempt))


def explanation(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain values."""
    shown: dict[str, Any] = {"route": ROUTES[verdict.action], "reason": verdict.reason, "policy": verdict.policy}
    if verdict.prepared is not None:
        features = verdict.prepared.features
        shown["features"] = {name: getattr(features, name) for name in features.__slots__ if name != "results"}
        shown["engine_sees"] = {
            "system": verdict.prepared.task.system,
            "tools": list(verdict.prepared.catalogue.tools),
            "steps": list(verdict.prepared.task.steps),
        }
    if verdict.text:
        shown["answer"] = verdict.text
    if verdict.attempt is not None:
        evidence = verdict.attempt.evidence
        shown["evidence"] = {
            "failures": list(evidence.failures),
            "confidence": evidence.confidence,
            "uncovered": evidence.uncovered,
        }
        if verdict.attempt.findings is not None:
            shown["calls"] = [{"name": c.name, "arguments": dict(c.arguments)} for c in verdict.attempt.findings.calls]
        detail = getattr(verdict.attempt.outcome, "detail", "")
        if detail:
            shown["engine_detail"] = detail
    return shown
