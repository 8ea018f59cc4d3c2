"""The only place that knows concrete engines and stores: configuration -> services."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from needle_policies.canary import Canary
from needle_policies.cascade import Cascade
from needle_policies.guards import Guards
from needle_policies.merge import Merge
from needle_policies.registry import build as build_policies
from needle_router._version import __version__
from needle_router.alone import Alone
from needle_router.calibrate.trials import Terms
from needle_router.config.certificates import certificates_of, named
from needle_router.config.schema import Config
from needle_router.dashboard import Dashboard
from needle_router.engine.archives import TINY, cactus_cache, rust_archive
from needle_router.engine.base import Engine, EngineState
from needle_router.engine.identity import Identity
from needle_router.engine.off import OffEngine
from needle_router.engine.pool import EnginePool
from needle_router.engine.session import LoadFailed
from needle_router.ledger import Ledger, Place, default_path, place_of
from needle_router.metrics import Metrics
from needle_router.pipeline import Pipeline
from needle_router.preparing import World
from needle_router.prices import Prices
from needle_router.services import Services, local_name
from needle_router.spend import Spend, local_now
from needle_router.standings import Standings
from needle_router.supply.background import supplied
from needle_router.tokens import counter_for, window_of
from needle_router.totals import Totals

#: Names of the local model that a request may ask for, whatever model runs.
LOCAL_MODELS = ("needle-2", "needle-3", "tiny-needle")


def build(
    config: Config, *, upstream: bool, environ: Mapping[str, str] = os.environ, may_fetch: bool = True
) -> Services:
    """Everything a router needs; nothing is started yet. `may_fetch` allows `engine.auto_pull`."""
    auto_pull = may_fetch and config.engine.auto_pull
    engine = supplied(build_engine(config, environ), environ, auto_pull=auto_pull)
    model = model_file(config, environ)
    # The tiny model was trained without facts, and its backend leaves them out.
    tokens = counter_for(model, reads_system=config.engine.model != TINY)
    room = prompt_room(config, model)
    policies = build_cascade(config, room=room)
    spend = Spend()
    engine_name = Identity(config.engine, environ, lambda: engine.health().state is EngineState.READY)
    standings = Standings(terms_of(policies), standings_path(config, environ))
    world = World(now=local_now, spend=spend.now, engine=engine_name, standings=standings.of)
    pipeline = Pipeline(config=config, engine=engine, policies=policies, tokens=tokens, world=world)
    return Services(
        config=config,
        engine=engine,
        pipeline=pipeline,
        alone=Alone(pipeline, max_prompt_tokens=prompt_limit(policies, room), max_tools=guards_of(policies).max_tools),
        tokens=tokens,
        prices=Prices(config.prices),
        totals=Totals(),
        metrics=Metrics(version=__version__, backend=config.engine.backend),
        ledger=ledger_of(config, environ),
        dashboard=Dashboard(
            ledger_path(config, environ),
            days=config.report.dashboard_days,
            penalty_usd=config.report.penalty_usd,
            certificates=[path for _, path in named(config)],
        ),
        upstream=upstream,
        spend=spend,
        standings=standings,
        on_compared=[standings.note],
        local_models=frozenset((*LOCAL_MODELS, local_name(config.engine.model))),
    )


def build_engine(config: Config, environ: Mapping[str, str]) -> Engine:
    """The engine pool, or none at all in mode off."""
    if config.mode == "off":
        return OffEngine("mode is off")
    return EnginePool(config.engine, environ=environ)


def build_cascade(config: Config, *, room: int | None = None) -> Cascade:
    """The configured policies, with merging around those that judge calls; no prompt may be longer than `room`."""
    return build_policies(
        [within(table, room) for table in config.policy],
        Merge(when=config.merge.when, streaming=config.merge.streaming),
        certificates_of(config),
    )


def within(table: dict[str, Any], room: int | None) -> dict[str, Any]:
    """A policy's table whose prompt limit, if it is one with such a limit, is at most `room` tokens."""
    if room is None or table.get("kind") != "guards":
        return table
    limit = table.get("max_prompt_tokens", Guards().max_prompt_tokens)
    # A value of a wrong type is left as it stands: whoever checks the table names it.
    return {**table, "max_prompt_tokens": min(limit, room)} if isinstance(limit, int) else table


def prompt_limit(policies: Cascade, room: int | None) -> int:
    """The longest prompt in tokens."""
    limit = guards_of(policies).max_prompt_tokens
    return limit if room is None else min(limit, room)


def terms_of(policies: Cascade) -> Terms | None:
    """What the canary tests; None where there is no canary that tests anything."""
    canary = next((one for one in policies.every() if isinstance(one, Canary) and one.max_error), None)
    return None if canary is None else Terms(canary.max_error, canary.delta, canary.window, canary.steps)


def standings_path(config: Config, environ: Mapping[str, str]) -> Path | None:
    """Where the canary's state stands: beside the ledger's file; None where the ledger is off."""
    place = ledger_path(config, environ)
    if place is None:
        return None
    file = place if isinstance(place, Path) else default_path(environ)
    return file.with_name(f"{file.name}.canary.json")


def guards_of(policies: Cascade) -> Guards:
    """The configured guards, or their defaults where there are none."""
    return next((policy for policy in policies.policies if isinstance(policy, Guards)), Guards())


def prompt_room(config: Config, model: Path | None) -> int | None:
    """Tokens that the model's window leaves for a prompt; None where the window is not known."""
    window = window_of(model)
    # A prompt that fills the room to the last token cannot be told from one that was cut to fit.
    return None if window is None else max(1, window - config.engine.max_new_tokens - 1)


def model_file(config: Config, environ: Mapping[str, str]) -> Path | None:
    """The model's archive, when it is on this machine; of a native needle-2, whose own has none, the one for rust."""
    name = config.engine.model
    if name.endswith(".cact"):
        return Path(name).expanduser()
    if config.engine.backend == "scripted":
        return None
    try:
        return rust_archive(name, cache_root=cactus_cache(environ))
    except LoadFailed:
        return None


def ledger_path(config: Config, environ: Mapping[str, str]) -> Place | None:
    """Where the ledger stands; None when it is off."""
    if config.ledger.path == "off":
        return None
    return place_of(config.ledger.path) if config.ledger.path else default_path(environ)


def ledger_of(config: Config, environ: Mapping[str, str]) -> Ledger:
    """The ledger that the configuration names, not started."""
    settings = config.ledger
    return Ledger(
        ledger_path(config, environ),
        retention_days=settings.retention_days,
        instance=settings.instance or f"{socket.gethostname()}-{os.getpid()}",
    )


async def wait_until_loaded(engine: Engine, *, timeout_s: float = 60.0) -> EngineState:
    """Wait until the engine is ready or has failed; returns its state then."""
    import anyio

    with anyio.move_on_after(timeout_s):
        while engine.health().state is EngineState.LOADING:  # noqa: ASYNC110  # the port has no event; loading is rare
            await anyio.sleep(0.02)
    return engine.health().state
