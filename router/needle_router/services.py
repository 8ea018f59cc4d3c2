"""The parts that a running router holds together; made once by `build`, shared by every request."""

from __future__ import annotations

import logging
import secrets
import string
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from needle_router._version import __version__
from needle_router.alone import Alone
from needle_router.config.schema import Config
from needle_router.dashboard import Dashboard
from needle_router.engine.base import Engine
from needle_router.forward.upstreams import UpstreamState
from needle_router.ledger import Ledger
from needle_router.metrics import Metrics
from needle_router.pipeline import Pipeline
from needle_router.prices import Prices
from needle_router.records import DecisionRecord
from needle_router.reply import Stamp
from needle_router.spend import Spend
from needle_router.standings import Standings
from needle_router.surfaces.ids import call_id
from needle_router.tokens import TokenCounter
from needle_router.totals import Totals
from needle_router.turn import Usage

logger = logging.getLogger("needle_router.services")
#: Each byte below 248 as one of 62 characters, four bytes for each; the other eight would make some more likely.
ALPHABET = (string.ascii_letters + string.digits).encode() * 4
DROPPED = bytes(range(len(ALPHABET), 256))
TABLE = ALPHABET + DROPPED


def random_text(length: int) -> str:
    """`length` characters of [A-Za-z0-9]; OpenAI's ids look like this."""
    found = b""
    while len(found) < length:
        found += secrets.token_bytes(length + 8).translate(TABLE, DROPPED)
    return found[:length].decode("ascii")


def local_name(model: str) -> str:
    """The name under which the model of `engine.model` is offered."""
    return "tiny-needle" if model == "tiny" else model.rpartition("/")[2].removesuffix(".cact")


@dataclass(slots=True)
class Services:
    """Everything a request may use.

    `upstream` says whether somebody answers what Needle cannot; `upstream_states` asks our own proxy how each of its
    upstreams stands, and knows none where an app stands behind the router.
    """

    config: Config
    engine: Engine
    pipeline: Pipeline
    alone: Alone
    tokens: TokenCounter
    prices: Prices
    totals: Totals
    metrics: Metrics
    ledger: Ledger
    upstream: bool
    local_models: frozenset[str]
    spend: Spend
    dashboard: Dashboard
    standings: Standings
    upstream_states: Callable[[], Sequence[UpstreamState]] = field(default=tuple)
    draining: bool = False
    #: Audits under way.
    audits: int = 0
    #: Told of every record that carries a comparison, from shadow runs and audits alike.
    on_compared: list[Callable[[DecisionRecord], None]] = field(default_factory=list)
    started: float = field(default_factory=time.time)
    now: Callable[[], float] = field(default=time.time)
    clock: Callable[[], float] = field(default=time.perf_counter)

    @property
    def fingerprint(self) -> str:
        """`system_fingerprint` of local answers: names the router and the engine."""
        settings = self.config.engine
        return f"needle-router-{__version__}/{settings.backend}/{settings.model.rpartition('/')[2]}"

    def stamp(self) -> Stamp:
        """Fresh identity for one answer."""
        return Stamp(
            id=f"chatcmpl-{random_text(29)}",
            created=int(self.now()),
            fingerprint=self.fingerprint,
            call_id=lambda: call_id(random_text(21)),
        )

    def cost_usd(self, model: str, usage: Usage | None) -> float | None:
        """What these tokens cost; None where the tokens or their price are unknown."""
        return None if usage is None else self.prices.cost_usd(model, usage)

    def record(self, record: DecisionRecord) -> None:
        """Note a finished request everywhere it counts; never raises into the request."""
        self.totals.add(record)
        self.spend.add(record.time_s, record.spent_usd)
        self.metrics.observe(record)
        self.ledger.put(record)
        if record.comparison:
            self._compared(record)

    def _compared(self, record: DecisionRecord) -> None:
        for listener in self.on_compared:
            try:
                listener(record)
            except Exception:
                logger.exception("a listener to comparisons failed")
