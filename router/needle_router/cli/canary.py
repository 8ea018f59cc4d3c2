"""`canary`: how the tools of a canary stand, and taking an alarm back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from needle_router.cli.exits import Exit, Stop, say
from needle_router.cli.logs import printable
from needle_router.cli.options import Settings, loaded
from needle_router.standings.resets import ALL, ask_for
from needle_router.standings.standings import read_trials, shown

NOTHING = "no comparison was counted yet: a canary needs max_error, and its rest in shadow or an audit"


def canary(settings: Settings | None, *, reset: tuple[str, ...], as_json: bool) -> Exit:
    """Print the state, or ask for resets; a running router takes those up with SIGHUP, another when it starts."""
    path = state_file(settings)
    rows = read(path)
    if reset:
        return ask(path, rows, reset)
    if as_json:
        print(json.dumps({"tools": rows}))
    else:
        print(*(map(line, rows) if rows else (NOTHING,)), sep="\n")
    return Exit.OK


def state_file(settings: Settings | None) -> Path:
    """Where the state is; stops where there is none."""
    from needle_router.build import standings_path

    path = standings_path(loaded(settings, routes=False).config, os.environ)
    if path is None:
        raise Stop(Exit.USAGE, "the ledger is off, so the state of the canary is not kept: see /-/status.json")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of the state, those in alarm first."""
    try:
        rows = [shown(group, trial) for group, trial in read_trials(path).items()]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Stop(Exit.FAILED, f"{path} cannot be read: {error}") from None
    return sorted(rows, key=lambda row: (not row["alarm"], row["tool"], row["fingerprint"]))


def line(row: Mapping[str, Any]) -> str:
    """One tool, in words."""
    counts = f"{row['wrong']} of {row['compared']} compared calls differ from the upstream's"
    share = f"step {row['step']} of {row['steps']}, share {row['share']:g}" if row["steps"] else "no steps"
    state = "ALARM, only watched" if row["alarm"] else share
    return printable(f"{row['tool']} ({row['fingerprint']}): {state}; {counts}")


def ask(path: Path, rows: list[dict[str, Any]], tools: tuple[str, ...]) -> Exit:
    """Leave the resets for the router; stops at a tool that is in no alarm."""
    alarmed = {row["tool"] for row in rows if row["alarm"]}
    calm = [tool for tool in tools if tool != ALL and tool not in alarmed]
    if calm or not alarmed:
        named = f"{printable(calm[0])} is in no alarm" if calm else "there is no alarm"
        raise Stop(Exit.USAGE, f"{named}; in alarm: {printable(', '.join(sorted(alarmed))) or 'nothing'}")
    try:
        ask_for(path, tools)
    except OSError as error:
        raise Stop(Exit.FAILED, f"the reset cannot be left beside {path}: {error.strerror}") from None
    say("a running router takes the reset up with SIGHUP, another one when it starts")
    return Exit.OK
