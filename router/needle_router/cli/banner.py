"""What a start says on stderr: one screen that answers where, to whom, with what, and how to use it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from needle_router._version import __version__
from needle_router.config.schema import Config
from needle_router.ledger.place import Place

MODES = {
    "on": "on: local answers where every check passes",
    "shadow": "shadow: everything goes to the upstream, the engine only runs beside it",
    "off": "off: everything goes to the upstream",
}


def banner(config: Config, *, url: str, file: Path | None, ledger: Place | None) -> Iterator[str]:
    """The lines; nothing in them is a key."""
    rows = {
        "listening": url,
        "upstream": upstream(config),
        "mode": mode(config),
        "engine": engine(config),
        "keys": keys(config),
        "ledger": str(ledger) if ledger is not None else "off",
        "config": str(file) if file is not None else "no file: environment, flags and defaults",
    }
    yield f"needle-router {__version__}"
    yield from (f"  {name:<10} {text}" for name, text in rows.items())
    yield f"point your client here:  export OPENAI_BASE_URL={url}/v1"


def upstream(config: Config) -> str:
    """Host and port of the upstream, and whose key it gets."""
    if not config.upstream.base_url:
        return "none: Needle alone"
    parts = urlsplit(config.upstream.base_url)
    host = parts.netloc.rpartition("@")[2]
    whose = "with the configured key" if config.upstream.inject_key else "with the client's own key"
    return f"{parts.scheme}://{host} {whose}"


def mode(config: Config) -> str:
    """The mode and the score that a call must reach."""
    minimum = next((table.get("minimum", 0.85) for table in config.policy if table.get("kind") == "threshold"), None)
    threshold = f", score from {minimum}" if minimum is not None and config.mode != "off" else ""
    return MODES[config.mode] + threshold


def engine(config: Config) -> str:
    """Backend, model and processes; the demo model is called one."""
    settings = config.engine
    if config.mode == "off":
        return "off"
    name = f"{settings.model} (demo model: not Needle's quality)" if settings.model == "tiny" else settings.model
    what = "scripted answers" if settings.backend == "scripted" else f"{name} on {settings.backend}"
    plural = "process" if settings.workers == 1 else "processes"
    return f"{what}, {settings.workers} {plural}, loading behind the open port"


def keys(config: Config) -> str:
    """Who may use the router."""
    if config.server.api_keys:
        return f"{len(config.server.api_keys)} router key(s) accepted"
    return "none needed: whoever reaches the port may use it"


def ledger_file(config: Config) -> Place | None:
    """Where the ledger stands, for showing."""
    from needle_router.build import ledger_path

    return ledger_path(config, os.environ)
