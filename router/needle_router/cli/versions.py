"""Versions of the router, of Python and of the packages whose behaviour shows."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TextIO

from needle_router._version import __version__
from needle_router.cli.exits import Exit

PACKAGES = ("cactus-needle", "needle-rs", "uvicorn", "starlette", "httptools", "httpx", "orjson", "jsonschema-rs")


def versions() -> dict[str, str | None]:
    """Name -> version; None where a package is not installed."""
    found: dict[str, str | None] = {"needle-router": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def show(out: TextIO, *, as_json: bool) -> Exit:
    """Write them to `out`."""
    found = versions()
    if as_json:
        print(json.dumps({**found, "platform": platform.platform()}), file=out)
        return Exit.OK
    for name, number in found.items():
        print(f"{name} {number or 'not installed'}", file=out)
    return Exit.OK
