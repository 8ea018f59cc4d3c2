"""`explain FILE`: where a request would go, and why. The engine runs if it would run; the upstream is never asked."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from needle_router.cli.exits import Exit, Stop
from needle_router.cli.logs import printable, set_up
from needle_router.cli.options import Settings, loaded


def explain(file: str, settings: Settings | None, *, headers: Sequence[str], as_json: bool) -> Exit:
    """Print the explanation of the request body in `file` (`-`: standard input) with headers ("name: value")."""
    import anyio

    from needle_router.explaining import explain as explanation_of

    found = loaded(settings)
    set_up("error")
    raw = read(file, limit=int(found.config.server.max_body_mb * 1024 * 1024))
    fields = [field(header) for header in headers]
    shown = anyio.run(functools.partial(explanation_of, found.config, raw, headers=fields))
    if as_json:
        print(json.dumps(shown, ensure_ascii=True, default=str))
    else:
        print(*lines(shown), sep="\n")
    return Exit.ENGINE_MISSING if engine_missing(shown) else Exit.OK


def field(header: str) -> tuple[bytes, bytes]:
    """Name and value of a header."""
    name, colon, value = header.partition(":")
    if not colon or not name.strip() or not header.isascii() or not header.isprintable():
        raise Stop(Exit.USAGE, f"--header {printable(header)}: expected name: value")
    return name.strip().lower().encode(), value.strip().encode()


def read(file: str, *, limit: int) -> bytes:
    """At most `limit` bytes of the file."""
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(file).open("rb") as source:
                raw = source.read(limit + 1)
    except OSError as error:
        raise Stop(Exit.USAGE, f"{file}: cannot be read: {error.strerror or os.strerror(error.errno or 0)}") from None
    if len(raw) > limit:
        raise Stop(Exit.USAGE, f"{file}: more than {limit} bytes (server.max_body_mb)")
    return raw


def engine_missing(shown: Mapping[str, Any]) -> bool:
    """Whether the answer is about an engine that could not be loaded rather than about the request."""
    refused = (shown.get("error") or {}).get("code")
    if refused in ("engine_off", "engine_loading"):
        return True
    return shown.get("reason") in ("engine-off", "engine-loading") and shown.get("policy") == "guards"


def lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """The explanation for people: the verdict in words, then what led to it."""
    from needle_policies import REASONS

    reason = shown["reason"]
    yield f"route      {shown['route']}"
    yield f"reason     {reason}: {REASONS.get(reason, '')}"
    if shown.get("policy"):
        yield f"policy     {shown['policy']}"
    if shown.get("error"):
        yield f"error      {printable(shown['error']['message'])}"
    if shown.get("fingerprint"):
        yield f"bound to   {shown['fingerprint']}"
    for name in ("detail", "engine_detail"):
        if shown.get(name):
            yield f"detail     {printable(str(shown[name]))}"
    beside = {
        "raced": "the upstream is asked at the same time",
        "audited": "the upstream is asked afterwards, to compare",
    }
    yield from (f"{name:<10} {text}" for name, text in beside.items() if shown.get(name))
    if shown.get("answer"):
        yield f"answer     {value(shown['answer'])}"
    for call in shown.get("calls", ()):
        yield f"call       {printable(call['name'])} {json.dumps(call['arguments'], ensure_ascii=True)}"
    for section in ("evidence", "features", "engine_sees"):
        if section in shown:
            yield f"{section.replace('_', ' ')}:"
            yield from (f"  {name:<14} {value(item)}" for name, item in shown[section].items())


def value(item: Any) -> str:
    """A value on one line, without control characters."""
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=True, default=str)
    return printable(text.replace("\n", " / "))
