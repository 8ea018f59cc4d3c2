"""Exit codes, and the way from an exception to one: no traceback for what a user can cause."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum


class Exit(IntEnum):
    """What the process tells its caller."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PORT_IN_USE = 3
    ENGINE_MISSING = 4


class Stop(Exception):
    """Ends the command with an exit code; each line goes to stderr."""

    def __init__(self, code: Exit, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.code = code
        self.lines = lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: that of the process) and return its exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        from needle_router.cli.commands import run

        return int(run(arguments))
    except Stop as stop:
        say(*stop.lines)
        return int(stop.code)
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as a shell counts
    except BrokenPipeError:
        # The reader of our output is gone (`| head`); the interpreter must not fail again while it flushes.
        sys.stdout = None
        return int(Exit.FAILED)


def say(*lines: str) -> None:
    """Lines for people, on stderr."""
    for line in lines:
        print(f"needle-router: {line}", file=sys.stderr)
