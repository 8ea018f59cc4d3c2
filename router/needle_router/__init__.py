"""needle-router: a tool-call router in front of an OpenAI-compatible endpoint."""

from needle_router._version import __version__

__all__ = ["__version__"]
