"""Tool names by pattern: a glob (`get_*`), or a regular expression between slashes (`/^(get|list)/`)."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Sequence


def is_regex(pattern: str) -> bool:
    """Whether the pattern is written as a regular expression."""
    return len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/")


@functools.lru_cache(maxsize=512)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, ready for `search`; raises `re.error` where it is none. Case counts."""
    return re.compile(pattern[1:-1] if is_regex(pattern) else r"\A" + fnmatch.translate(pattern))


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether any of the patterns fits the name."""
    return any(compiled(pattern).search(name) for pattern in patterns)
