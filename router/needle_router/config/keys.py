"""The catalogue of keys, read off the schema: path, type, default, environment variable and command line flag.

A *key* is a leaf such as `server.port`, or one of the two open tables, `policy` and `prices`, which are set as a whole.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from needle_router.config.schema import Config

ENV_PREFIX = "NEEDLE_ROUTER_"
#: Short spellings of variables: NEEDLE_ROUTER_UPSTREAM is what a first try needs.
ENV_ALIASES: Mapping[str, str] = MappingProxyType({"NEEDLE_ROUTER_UPSTREAM": "upstream.base_url"})
#: Set by the prefix, but not a key: where the file is.
ENV_CONFIG = "NEEDLE_ROUTER_CONFIG"

#: Keys that have a flag of their own; every other key is reached by `--set section.key=value`.
FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "mode": "--mode",
        "server.host": "--host",
        "server.port": "--port",
        "server.log_level": "--log-level",
        "upstream.base_url": "--upstream",
        "engine.backend": "--backend",
        "engine.model": "--model",
        "engine.workers": "--workers",
        "ledger.path": "--ledger",
    }
)

#: Values that must never be printed, logged or put into an error.
SECRET = frozenset({"server.api_keys", "upstream.api_key"})


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its dotted path, Python type and default."""

    path: str
    type: Any
    default: Any

    @property
    def env(self) -> str:
        """The variable that sets it."""
        return ENV_PREFIX + self.path.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """The flag that sets it."""
        return FLAGS.get(self.path, "--set")


def _keys(struct: type[msgspec.Struct], prefix: str = "") -> Iterable[Key]:
    hints = typing.get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        wanted, path = hints[field.name], prefix + field.name
        if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
            yield from _keys(wanted, path + ".")
        else:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            yield Key(path, wanted, default)


#: path -> key, in the order of the schema.
KEYS: Mapping[str, Key] = MappingProxyType({key.path: key for key in _keys(Config)})
#: The sections that hold leaves.
SECTIONS = frozenset(path.partition(".")[0] for path in KEYS if "." in path)
#: variable -> path of the key it sets.
ENV_KEYS: Mapping[str, str] = MappingProxyType({key.env: key.path for key in KEYS.values()} | dict(ENV_ALIASES))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the nearest of `known`, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def unknown_key(path: str) -> str:
    """The problem line for a key that does not exist, with the nearest one: same section first, then any section.

    A name that stands in a section as it is comes before one that is only like it: `port` means `server.port`.
    """
    section, _, name = path.rpartition(".")
    siblings = {known.rpartition(".")[2] for known in KEYS if known.rpartition(".")[0] == section}
    elsewhere = [known for known in KEYS if known.rpartition(".")[2] == name]
    exact = bool(elsewhere) and not section
    if not exact and (hint := did_you_mean(name, siblings if section else siblings | SECTIONS)):
        return f"{path}: unknown key{hint}"
    if elsewhere:
        return f"{path}: unknown key, did you mean {elsewhere[0]!r}?"
    return f"{path}: unknown key{'' if section in SECTIONS else did_you_mean(path, KEYS)}"
