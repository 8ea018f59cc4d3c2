"""What an engine process may know of the router's environment: an allow-list, so that no key leaks into native code."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

#: What a process needs to run, to find Python modules, and to find engines and caches.
ALLOWED = (
    "PATH", "HOME", "USER", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*", "LD_LIBRARY_PATH", "DYLD_*",
    "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
    "PYTHONNOUSERSITE", "PYTHONFAULTHANDLER", "OMP_NUM_THREADS", "RAYON_NUM_THREADS",
    "HF_HOME", "HF_HUB_CACHE", "NEEDLE_LIB_PATH", "NEEDLE2_LIB_PATH", "NEEDLE3_LIB_PATH",
    "NEEDLE_FAKE_*", "NEEDLE_LOG*",
)  # fmt: skip
#: Never passed on, whatever the list above says.
FORBIDDEN = ("*KEY*", "*TOKEN*", "*SECRET*", "*PASSWORD*", "*AUTH*", "*CREDENTIAL*")
#: An engine process neither reports home nor asks the model hub.
FIXED = {"NEEDLE_TELEMETRY": "0", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of an engine process."""
    kept = {name: value for name, value in environ.items() if _any(name, ALLOWED) and not _any(name, FORBIDDEN)}
    return kept | FIXED


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name.upper(), pattern) for pattern in patterns)
