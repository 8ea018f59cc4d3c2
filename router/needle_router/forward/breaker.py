"""A circuit breaker for one upstream: pure, the time comes in as an argument.

Closed, it counts failures to connect in a row. At `failures` of them it opens: for `open_s` seconds nobody waits for a
connection that will not come. Then it lets exactly one request through as a probe; that one closes it or opens it anew.
Only failures to reach the upstream count. An answer of any status is an answer, and what an upstream does with a
request it took is the client's business.
"""

from __future__ import annotations

from dataclasses import dataclass

#: In the order of their badness.
STATES = ("closed", "half-open", "open")


@dataclass(slots=True)
class Breaker:
    """Mutable state; `failures` 0 switches the breaker off. Times are seconds of a monotonic clock."""

    failures: int
    open_s: float
    failed_in_row: int = 0
    opened_at: float | None = None
    probing: bool = False

    def allows(self, now: float) -> bool:
        """Whether a request may try; in the half-open state the first that asks becomes the probe."""
        if self.opened_at is None:
            return True
        if self.probing or now - self.opened_at < self.open_s:
            return False
        self.probing = True
        return True

    def reached(self) -> None:
        """A connection was had."""
        self.failed_in_row, self.opened_at, self.probing = 0, None, False

    def unreachable(self, now: float) -> None:
        """A connection was not had."""
        self.failed_in_row += 1
        if self.failures and (self.probing or self.failed_in_row >= self.failures):
            self.opened_at, self.probing = now, False

    def abandoned(self) -> None:
        """The request went away before it was known; a probe leaves its place to the next."""
        self.probing = False

    def wait_s(self, now: float) -> float:
        """Seconds until the next probe, 0 when closed."""
        return 0.0 if self.opened_at is None else max(0.0, self.opened_at + self.open_s - now)

    def state(self, now: float) -> str:
        """One of `STATES`."""
        if self.opened_at is None:
            return "closed"
        return "half-open" if self.probing or now - self.opened_at >= self.open_s else "open"
