"""Where records are kept: the path of a SQLite file, or the URL of a PostgreSQL database.

Such a URL may hold a password, so nothing shows it: `str` of a `Database` names host and database alone, and `repr`
hides even the URL.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

SCHEMES = ("postgresql", "postgres")
HIDDEN = "(not shown)"


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL database, by its connection URL."""

    url: str = field(repr=False)

    def exists(self) -> bool:
        """As of a file; whether a server answers is known only by asking it."""
        return True

    def __str__(self) -> str:
        return bare(self.url)


Place = Path | Database


def place_of(text: str) -> Place:
    """The place that `ledger.path` names."""
    return Database(text) if scheme_of(text) in SCHEMES else Path(text).expanduser()


def scheme_of(text: str) -> str:
    """What stands before `://`, in lower case; "" where nothing does."""
    before, separator, _ = text.partition("://")
    return before.lower() if separator else ""


def bare(url: str) -> str:
    """Host and database of a URL; nothing at all of one in which a password may stand anywhere.

    A password with an unencoded slash, question mark or number sign ends the part in which passwords are looked for.
    """
    scheme = "postgresql" if scheme_of(url) in SCHEMES else scheme_of(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}://{HIDDEN}"
    if "@" in parts.path + parts.query or parts.fragment:
        return f"{scheme}://{HIDDEN}"
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def shown(text: str) -> str:
    """`ledger.path` for eyes."""
    return bare(text) if scheme_of(text) else text


def default_path(environ: Mapping[str, str]) -> Path:
    """$XDG_STATE_HOME/needle-router/decisions.db, or the same under ~/.local/state."""
    state = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME") or "~", ".local", "state")
    return Path(state).expanduser() / "needle-router" / "decisions.db"
