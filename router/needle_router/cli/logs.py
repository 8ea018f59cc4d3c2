"""Log lines: one line each on stderr, level from the configuration, no control characters from outside."""

from __future__ import annotations

import asyncio
import logging
import sys
import time

#: Libraries that would speak of each connection; theirs is heard from warnings on.
QUIET = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "httpx", "httpcore", "aiohttp", "huggingface_hub")


class OneLine(logging.Formatter):
    """`2026-11-30T05:57:00Z warning needle_router.engine: text`, whatever the text holds.

    Line breaks and escape characters are escaped, so that a tool's name cannot forge a line or colour a terminal; a
    traceback follows on its own lines, indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, with a traceback below it when there is one."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        line = f"{when} {record.levelname.lower()} {record.name}: {printable(record.getMessage())}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n  {printable(part)}" for part in trace.splitlines())
        return line


def printable(text: str) -> str:
    """`text` with everything that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )


class CutAnswers(logging.Filter):
    """An answer that was cut on purpose is one line; uvicorn takes it for a fault of the app and prints a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record stays, some in other words."""
        from needle_router.forward.proxy import ResponseCut

        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ResponseCut | asyncio.CancelledError):
            why = str(error) if isinstance(error, ResponseCut) else "the server is stopping"
            record.exc_info, record.msg, record.args = None, "an answer was cut: %s", (why,)
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


CUT_ANSWERS = CutAnswers()


def set_up(level: str) -> None:
    """Send all log records to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("uvicorn.error").addFilter(CUT_ANSWERS)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
