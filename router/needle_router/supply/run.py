"""A pull with everything around it: the machine's platform, the package's tables, the hub of the environment."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from needle_router.engine.archives import cactus_cache
from needle_router.engine.environ import FIXED
from needle_router.supply.faults import SupplyFault, Unsupported
from needle_router.supply.orders import Order, order_for, weights_for
from needle_router.supply.platforms import tag_here
from needle_router.supply.pull import Pulled, pull

#: Nothing is reported home. Whether the hub may be asked is the user's word, so that is left as it is.
QUIET = {name: value for name, value in FIXED.items() if name != "HF_HUB_OFFLINE"}


def run(model: str, *, backend: str = "native", update: bool = False, bars: bool = False) -> Pulled:
    """Fetch what a backend needs of a model, unless it is there. `bars` draws progress bars; else progress is logged.

    Sets variables of this process, so it is for a process of its own. Raises SupplyFault.
    """
    os.environ.update(QUIET)
    order, root = order_here(model, backend), cactus_cache(os.environ)
    from needle_router.supply.hub import HuggingFaceHub
    from needle_router.supply.progress import logged_progress

    return pull(order, root, HuggingFaceHub(None if bars else logged_progress()), update=update)


def order_here(model: str, backend: str) -> Order:
    """What a backend needs of `model` on this machine."""
    try:
        from needle.agent import fetch
    except ImportError as error:
        raise Unsupported(f"the package cactus-needle cannot be imported: {error}") from error
    return weights_for(model, fetch) if backend == "rust" else order_for(model, tag_here(), fetch)


def main() -> None:
    """The background fetch of a serving router: argv is model, backend and log level; prints one JSON object."""
    from needle_router.engine.worker import die_with_parent

    die_with_parent()
    model, backend, level = sys.argv[-3:]
    _log_as_the_router(level)
    try:
        result = {"ok": True, "again": False, "detail": told(run(model, backend=backend))}
    except SupplyFault as fault:
        result = {"ok": False, "again": fault.again, "detail": str(fault)}
    print(json.dumps(result), flush=True)  # noqa: T201  # the answer to the router


def told(pulled: Pulled) -> str:
    """What a pull did, in one line."""
    files = ", ".join(Path(pin.installed).name for pin in pulled.pins)
    repo, revision = pulled.pins[0].repo, pulled.pins[0].revision[:12]
    if not pulled.fetched:
        return f"{files} of {repo} at {revision} stand in place, with the recorded hashes"
    how = "its hashes are recorded from now on" if pulled.first_use else "with the recorded hashes"
    return f"{files} of {repo} at {revision} fetched, {how}"


def read_result(output: bytes) -> Mapping[str, Any]:
    """The last line that `main` wrote; a fault that may pass where there is none."""
    try:
        result = json.loads(output.splitlines()[-1])
        return {"ok": bool(result["ok"]), "again": bool(result["again"]), "detail": str(result["detail"])}
    except (ValueError, IndexError, KeyError, TypeError):
        return {"ok": False, "again": True, "detail": "the fetching process ended without a word"}


def _log_as_the_router(level: str) -> None:
    # The lines join those of `serve` on the same standard error, and look like them.
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.addLevelName(number, logging.getLevelName(number).lower())
    line = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    line.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(line)
    logging.basicConfig(level=int(level), handlers=[handler])
