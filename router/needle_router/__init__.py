"""needle-router: a tool-call router in front of an OpenAI-compatible endpoint.

Names are loaded when they are used, so that an engine process, which is part of this package too, stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from needle_router._version import __version__

if TYPE_CHECKING:
    from needle_router.app import create_app
    from needle_router.config.load import load_config
    from needle_router.middleware import NeedleRouter

__all__ = ["NeedleRouter", "__version__", "create_app", "load_config"]
_HOMES = {
    "NeedleRouter": "needle_router.middleware",
    "create_app": "needle_router.app",
    "load_config": "needle_router.config.load",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
