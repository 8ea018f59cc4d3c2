"""The configuration for eyes: every key as TOML, secrets replaced, each with the place it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from needle_router.config.keys import KEYS, SECRET
from needle_router.config.schema import Config
from needle_router.ledger.place import shown

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def redacted(config: Config) -> dict[str, Any]:
    """`config` as plain data without secrets: a key that is set reads `(set)`, a URL's user and query are gone."""
    plain: dict[str, Any] = msgspec.to_builtins(config)
    plain["server"]["api_keys"] = ["(set)"] * len(config.server.api_keys)
    plain["upstream"]["api_key"] = "(set)" if config.upstream.api_key else ""
    plain["upstream"]["base_url"] = bare_url(config.upstream.base_url)
    plain["ledger"]["path"] = shown(config.ledger.path)
    return plain


def bare_url(url: str) -> str:
    """`url` without user, password, query and fragment; nothing of one that cannot be split."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def toml_lines(config: Config, origins: Mapping[str, str] | None = None, *, all_keys: bool = True) -> Iterator[str]:
    """The redacted configuration as lines of TOML; with `origins` a comment says where each value came from.

    Without `all_keys`, keys at their default are left out (needs `origins`).
    """
    plain, section = redacted(config), ""
    for path in sorted(KEYS, key=_table_order):
        origin = (origins or {}).get(path, "default")
        if not all_keys and origin == "default":
            continue
        here, _, name = path.rpartition(".")
        if here and here != section:
            yield f"\n[{here}]"
            section = here
        value = plain[here][name] if here else plain[name]
        note = f"  # {origin}" if origins is not None else ""
        if path == "policy":
            yield from (line for table in value for line in _tables("policy", table, note))
        elif path == "prices":
            yield from _price_tables(value, note)
        else:
            comment = f"{note}, secret" if note and path in SECRET else note
            yield f"{name} = {toml_value(value)}{comment}"


def _table_order(path: str) -> int:
    # TOML wants bare keys before the first table; arrays of tables read best at the end.
    order = list(KEYS).index(path)
    return order + 1000 if path in ("policy", "prices") else order


def _tables(name: str, table: Mapping[str, Any], note: str) -> Iterator[str]:
    yield f"\n[[{name}]]{note}"
    nested = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    for key, value in table.items():
        if key not in nested:
            yield f"{toml_key(key)} = {toml_value(value)}"
    for key, value in nested.items():
        yield f"[{name}.{toml_key(key)}]"
        yield from (f"{toml_key(inner)} = {toml_value(item)}" for inner, item in value.items())


def _price_tables(prices: Mapping[str, Mapping[str, Any]], note: str) -> Iterator[str]:
    for model, price in prices.items():
        yield f"\n[prices.{toml_key(model)}]{note}"
        yield from (f"{name} = {toml_value(value)}" for name, value in price.items() if value is not None)


def toml_key(name: str) -> str:
    """`name` as a TOML key, quoted where it must be."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """A scalar, list or table as one TOML value; a JSON string is a valid basic TOML string."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
