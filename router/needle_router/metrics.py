"""Prometheus metrics; labels come from closed sets, so that no request can add a series."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from needle_policies import REASONS
from needle_router.compare import OUTCOMES
from needle_router.engine.base import EngineHealth
from needle_router.forward.breaker import STATES
from needle_router.records import AUDITS, UNPAID_AUDITS, DecisionRecord

ERROR_KINDS = frozenset(("unreachable", "timeout", "disconnected", "status"))
ROUTES = ("local", "upstream", "merged")
#: What may have no known price.
COST_KINDS = ("saved", "wasted", "audits")
#: 0 is a request whose client left before any answer began; whatever upstreams make up is "other".
CODES = {0: "0"} | {int(status): str(int(status)) for status in HTTPStatus}
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
SHORT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Metrics:
    """The metrics of one router, in a registry of its own."""

    def __init__(self, *, version: str, backend: str) -> None:
        self.registry = registry = CollectorRegistry()
        name = "needle_router_"
        self._requests = Counter(f"{name}requests", "Requests", ["route", "reason", "code"], registry=registry)
        self._duration = Histogram(
            f"{name}request_duration_seconds", "Request to last byte", ["route"], buckets=SECONDS, registry=registry
        )
        self._overhead = Histogram(
            f"{name}overhead_seconds", "Time the router added", buckets=SHORT_SECONDS, registry=registry
        )
        self._engine = Histogram(f"{name}engine_duration_seconds", "Engine compute", buckets=SECONDS, registry=registry)
        self._queue = Gauge(f"{name}engine_queue_depth", "Tasks waiting for the engine", registry=registry)
        self._restarts = Counter(f"{name}engine_restarts", "Engine processes restarted", registry=registry)
        self._reinits = Counter(f"{name}engine_reinits", "Tool sets loaded anew", registry=registry)
        self._errors = Counter(f"{name}upstream_errors", "Upstream failures", ["kind"], registry=registry)
        self._breaker = Gauge(
            f"{name}breaker_state",
            "Breaker of the n-th upstream: 0 closed, 1 half-open, 2 open",
            ["upstream"],
            registry=registry,
        )
        self._tokens = Counter(f"{name}tokens_saved", "Tokens not sent upstream", ["kind"], registry=registry)
        self._saved = Counter(f"{name}cost_saved_usd", "USD not spent upstream", registry=registry)
        self._races = Counter(f"{name}races", "Races, by the leg that answered", ["route"], registry=registry)
        self._wasted = Counter(f"{name}cost_wasted_usd", "USD of upstream calls cancelled in races", registry=registry)
        self._audits = Counter(f"{name}audits", "Local answers drawn for an audit", ["outcome"], registry=registry)
        self._audited = Counter(f"{name}cost_audits_usd", "USD of audits", registry=registry)
        self._unknown = Counter(f"{name}cost_unknown", "Amounts without a known price", ["kind"], registry=registry)
        self._compared = Counter(
            f"{name}comparisons", "Engine's calls compared with the upstream's", ["outcome"], registry=registry
        )
        self._promoted = Counter(f"{name}canary_promotions", "Steps that tools were promoted by", registry=registry)
        self._alarms = Gauge(f"{name}canary_alarms", "Tools in alarm, by fingerprint", registry=registry)
        self._dropped = Counter(f"{name}ledger_dropped", "Records the ledger dropped", registry=registry)
        Gauge(f"{name}build_info", "Version", ["version", "backend"], registry=registry).labels(version, backend).set(1)
        for kind in sorted(ERROR_KINDS):
            self._errors.labels(kind)
        for kind in ("prompt", "completion"):
            self._tokens.labels(kind)
        for route in ROUTES:
            self._races.labels(route)
        for outcome in AUDITS:
            self._audits.labels(outcome)
        for outcome in OUTCOMES:
            self._compared.labels(outcome)
        for kind in COST_KINDS:
            self._unknown.labels(kind)
        # Finding a series takes longer than counting in it.
        self._series = functools.lru_cache(maxsize=4096)(self._requests.labels)
        self._durations = functools.lru_cache(maxsize=16)(self._duration.labels)
        self._kinds = functools.lru_cache(maxsize=16)(self._tokens.labels)
        self._seen = {"restarts": 0, "reinits": 0, "dropped": 0, "promotions": 0}

    def observe(self, record: DecisionRecord) -> None:
        """Count a finished request."""
        reason = record.reason if record.reason in REASONS else "other"
        self._series(record.route, reason, CODES.get(record.status, "other")).inc()
        self._durations(record.route).observe(record.total_s)
        self._overhead.observe(record.overhead_s)
        if record.engine_ran:
            self._engine.observe(record.engine_s)
        if record.saved is not None:
            self._kinds("prompt").inc(record.saved.prompt_tokens)
            self._kinds("completion").inc(record.saved.completion_tokens)
            self._money("saved", self._saved, record.saved_usd)
        if record.raced:
            self._races.labels(record.route).inc()
        if record.comparison in OUTCOMES:
            self._compared.labels(record.comparison).inc()
        if record.wasted is not None:
            self._money("wasted", self._wasted, record.wasted_usd)
        if record.audit:
            self._audits.labels(record.audit).inc()
        if record.audit not in UNPAID_AUDITS:
            self._money("audits", self._audited, record.audit_usd)

    def _money(self, kind: str, counter: Counter, usd: float | None) -> None:
        """Add an amount, or count it as unknown."""
        if usd is None:
            self._unknown.labels(kind).inc()
        else:
            counter.inc(usd)

    def upstream_error(self, kind: str) -> None:
        """Count an upstream failure: unreachable, timeout, disconnected or status."""
        self._errors.labels(kind if kind in ERROR_KINDS else "status").inc()

    def refresh(self, health: EngineHealth, *, ledger_dropped: int) -> None:
        """Take over the counters that others keep."""
        self._queue.set(health.queue_depth)
        self._advance(self._restarts, "restarts", health.restarts)
        self._advance(self._reinits, "reinits", health.reinits)
        self._advance(self._dropped, "dropped", ledger_dropped)

    def canary(self, *, promotions: int, alarms: int) -> None:
        """Take over how the canary stands."""
        self._advance(self._promoted, "promotions", promotions)
        self._alarms.set(alarms)

    def breakers(self, states: Sequence[str]) -> None:
        """Take over the states of the upstreams' breakers; the label is the place of the upstream in the order."""
        self._breaker.clear()
        for index, state in enumerate(states):
            self._breaker.labels(str(index)).set(STATES.index(state))

    def _advance(self, counter: Any, name: str, value: int) -> None:
        counter.inc(max(0, value - self._seen[name]))
        self._seen[name] = max(value, self._seen[name])

    def render(self) -> tuple[bytes, str]:
        """The exposition text and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
