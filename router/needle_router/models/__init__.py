"""The demo model that ships inside the package: a real Needle-2-architecture network, small and trained on few words.

It knows five smart-home tools, ten rooms and twelve cities; it is *not* Needle's quality, and whatever shows it must
say so. It needs no download, so it carries `demo`, a first try and the tests.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

TINY_NEEDLE = "tiny-needle.cact"


def tiny_needle_path() -> Path:
    """The packaged `.cact` file (172 KB, generation 2)."""
    return Path(str(files(__name__).joinpath(TINY_NEEDLE)))
