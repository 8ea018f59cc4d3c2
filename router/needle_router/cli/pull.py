"""`pull`: fetch the engine of a model, with hashes that are recorded and kept."""

from __future__ import annotations

import logging
import os
import sys

from needle_router.cli.exits import Exit, Stop
from needle_router.cli.logs import set_up
from needle_router.cli.options import Settings, loaded
from needle_router.engine.archives import GENERATION_BY_MODEL, TINY, generation_of
from needle_router.engine.session import LoadFailed


def pull(model: str | None, settings: Settings | None, *, update: bool) -> Exit:
    """Fetch `model`, or the configured one; exit code 4 when it cannot be had or is refused."""
    found = loaded(settings)
    set_up(found.config.server.log_level)
    wanted = model or found.config.engine.model
    if wanted == TINY:
        print("tiny comes with the package: there is nothing to fetch")
        return Exit.OK
    name, backend = model_name(wanted), found.config.engine.backend
    if backend == "rust" and wanted not in GENERATION_BY_MODEL:
        print(f"{wanted} runs on needle-rs as it is: there is nothing to fetch")
        return Exit.OK
    from needle_router.supply.faults import SupplyFault
    from needle_router.supply.run import run, told

    try:
        pulled = run(name, backend=backend, update=update, bars=sys.stderr.isatty())
    except SupplyFault as fault:
        raise Stop(Exit.ENGINE_MISSING, str(fault)) from None
    print(f"{name}: {told(pulled)}")
    if backend != "rust":
        note_overriding(name)
    return Exit.OK


def model_name(wanted: str) -> str:
    """needle-2 or needle-3; a tuned `.cact` file stands for the generation whose engine runs it."""
    if wanted in GENERATION_BY_MODEL:
        return wanted
    try:
        generation = generation_of(wanted)
    except LoadFailed:
        names = " and ".join(GENERATION_BY_MODEL)
        raise Stop(Exit.USAGE, f"{wanted} is not on the hub and no .cact file; {names} can be fetched") from None
    return next(name for name, number in GENERATION_BY_MODEL.items() if number == generation)


def note_overriding(name: str) -> None:
    """Say when what was fetched will not be what runs."""
    variable = f"NEEDLE{GENERATION_BY_MODEL[name]}_LIB_PATH"
    if os.environ.get(variable):
        logging.getLogger("needle_router.supply").warning(
            "%s is set: the router loads the library that it names, not the fetched one", variable
        )
