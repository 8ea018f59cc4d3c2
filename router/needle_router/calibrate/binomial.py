"""Exact binomial tests: how surprising few errors are, and how many calls a promise needs.

The p-value of "the error is above alpha" after `errors` in `n` calls is P(Bin(n, alpha) <= errors). It is at most delta
exactly where the Clopper-Pearson upper bound at 1 - delta is at most alpha.
"""

from __future__ import annotations

import math
from functools import lru_cache

#: Halvings of [0, 1]: more than the 53 bits of a float do not change the result.
BISECTIONS = 60


def cdf(k: int, n: int, p: float) -> float:
    """P(Bin(n, p) <= k), for 0 < p < 1."""
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    if k < n * p:
        return _tail(k, n, p)
    # Summed from its small side: the other would be a difference of near-equal numbers.
    return 1.0 - _tail(n - k - 1, n, 1.0 - p)


def _tail(k: int, n: int, p: float) -> float:
    """The sum of the terms 0..k below the mean, from the largest down to where they no longer count."""
    log_first = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    term = math.exp(log_first + k * math.log(p) + (n - k) * math.log1p(-p))
    total, odds = 0.0, (1.0 - p) / p
    for i in range(k, -1, -1):
        total += term
        if term < total * 1e-17:
            break
        term *= i / (n - i + 1) * odds
    return min(1.0, total)


def p_value(errors: int, n: int, alpha: float) -> float:
    """How likely so few errors would be if the true error were `alpha`; 1 without data."""
    return cdf(errors, n, alpha) if n else 1.0


def upper_bound(errors: int, n: int, delta: float) -> float:
    """Clopper-Pearson: the true error is at most this, with probability 1 - `delta`."""
    if errors >= n:
        return 1.0
    low, high = errors / n, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(errors, n, middle) > delta else (low, middle)
    return high


def interval(count: int, n: int, delta: float) -> tuple[float, float]:
    """Clopper-Pearson: the true share lies between these bounds with probability 1 - `delta`; 0 to 1 without data."""
    if not n:
        return 0.0, 1.0
    return 1.0 - upper_bound(n - count, n, delta / 2), upper_bound(count, n, delta / 2)


@lru_cache(maxsize=4096)
def needed(alpha: float, delta: float, errors: int = 0) -> int:
    """The smallest number of calls that certify `alpha` at 1 - `delta` although `errors` of them were wrong."""
    low, high = errors, max(1, errors + 1)
    while p_value(errors, high, alpha) > delta:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if p_value(errors, middle, alpha) > delta else (low, middle)
    return high


def allowed(n: int, alpha: float, delta: float) -> int:
    """The most errors that `n` calls may hold and still certify; -1 when even none is too many."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if p_value(middle, n, alpha) <= delta else (low, middle)
    return low


def power(n: int, alpha: float, delta: float, true_error: float) -> float:
    """The probability that `n` calls certify `alpha` when they are wrong with probability `true_error`, above 0."""
    return cdf(allowed(n, alpha, delta), n, true_error)


def needed_for_power(alpha: float, delta: float, true_error: float, wanted: float = 0.8) -> int:
    """The smallest number of calls that certify with probability `wanted`, for 0 < `true_error` < `alpha`."""
    if not 0 < true_error < alpha:
        raise ValueError(f"true_error must be above 0 and below alpha ({alpha}), not {true_error}")
    errors = 0
    # Between two sizes that allow one error more the chance only falls: those sizes are all there is to try.
    while cdf(errors, needed(alpha, delta, errors), true_error) < wanted:
        errors += 1
    return needed(alpha, delta, errors)


def hoeffding_bentkus(risk: float, n: int, alpha: float) -> float:
    """A p-value of "the mean loss is above alpha" for losses anywhere in [0, 1] whose sample mean is `risk`.

    The smaller of Hoeffding's and Bentkus' tail bounds (Bates et al., arXiv 2101.02703, proposition 3).
    """
    if not n:
        return 1.0
    hoeffding = math.exp(-n * _divergence(min(risk, alpha), alpha))
    # Rounded first: n * risk of a whole number of errors must not be lifted to the next one.
    bentkus = math.e * cdf(math.ceil(round(n * risk, 9)), n, alpha)
    return min(1.0, hoeffding, bentkus)


def _divergence(a: float, b: float) -> float:
    """Kullback-Leibler divergence of two coins, in nats."""
    first = a * math.log(a / b) if a > 0 else 0.0
    return first + ((1 - a) * math.log((1 - a) / (1 - b)) if a < 1 else 0.0)
