"""Records and reports in one line."""

import time

from needle_router.records import DecisionRecord
from needle_router.report.summary import summary
from needle_router.report.tally import Tally
from needle_router.turn import Usage

DAY_S = 86_400.0
SAVED = Usage(100, 10)


def day_of(time_s):
    return time.strftime("%Y-%m-%d", time.gmtime(time_s))


def when(time_s):
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(time_s))


def local(**changes):
    """A local answer that saved a cent."""
    values = {
        "time_s": 1000.0,
        "route": "local",
        "reason": "confident",
        "policy": "threshold",
        "model": "m",
        "status": 200,
        "tools_called": ("f",),
        "confidence": 0.9,
        "engine_ran": True,
        "engine_s": 0.2,
        "saved": SAVED,
        "saved_usd": 0.01,
    }
    return DecisionRecord(**{**values, **changes})


def shadow(comparison="agree", **changes):
    """A decision that was compared while the upstream answered for five cents."""
    values = {
        "route": "upstream",
        "reason": "shadow",
        "comparison": comparison,
        "usage": SAVED,
        "cost_usd": 0.05,
        "saved": None,
        "saved_usd": None,
    }
    return local(**{**values, **changes})


def upstream(**changes):
    """A request that was passed on for two cents."""
    values = {"reason": "no-tools", "tools_called": (), "confidence": None, "engine_ran": False, "comparison": ""}
    return shadow(**{**values, "cost_usd": 0.02, **changes})


def tallied(*records, **options):
    return Tally(day_of=day_of, **{"since_s": 0.0, "until_s": 10 * DAY_S, **options}).take(records)


def reported(*records, penalty_usd=0.0, certificates=(), **options):
    return summary(tallied(*records, **options), penalty_usd=penalty_usd, certificates=certificates)
