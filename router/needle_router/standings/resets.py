"""Alarms that an operator takes back: left beside the state by the command line, taken up by the router.

Two files with one writer each: the router alone writes the state, the command line alone asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from needle_router.standings.statefile import read_whole, write_whole

#: Stands for every tool.
ALL = "*"


def resets_path(state: Path) -> Path:
    """Where resets for the state in `state` are asked for."""
    return state.with_name(state.name + ".resets")


def ask_for(state: Path, tools: Iterable[str]) -> None:
    """Ask for the alarms of `tools` to be taken back; raises `OSError`."""
    asked = sorted({*asked_for(state), *tools})
    write_whole(resets_path(state), {"tools": asked})


def asked_for(state: Path) -> tuple[str, ...]:
    """What is asked for; nothing where the file is none of ours."""
    try:
        plain = read_whole(resets_path(state))
    except (OSError, ValueError):
        return ()
    tools = plain.get("tools") if isinstance(plain, dict) else None
    return tuple(tool for tool in tools if isinstance(tool, str)) if isinstance(tools, list) else ()


def done(state: Path) -> None:
    """What was asked for is in the state."""
    with contextlib.suppress(OSError):
        resets_path(state).unlink()
