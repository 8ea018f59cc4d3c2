"""Where values come from: a TOML file, the environment, flags. Each source gives settings and the problems it has.

A `Setting` is a typed-or-not value with its origin; nothing is merged here.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from needle_router.config.keys import (
    ENV_ALIASES,
    ENV_CONFIG,
    ENV_KEYS,
    ENV_PREFIX,
    KEYS,
    SECTIONS,
    did_you_mean,
    unknown_key,
)
from needle_router.config.values import BadValue, convert, parse_text

FILE_NAME = "needle-router.toml"
#: A file larger than this is not a configuration.
MAX_FILE_BYTES = 1_000_000

# A Kubernetes Service that is called needle-router puts these into every container of its namespace.
_SERVICE_LINK = re.compile(r"NEEDLE_ROUTER_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)")


@dataclass(frozen=True, slots=True)
class Setting:
    """A converted value and where it came from: `file F`, `env NAME`, `flag --x`."""

    value: Any
    origin: str


@dataclass(slots=True)
class Source:
    """What one source says: path of key -> setting, and one line per problem."""

    settings: dict[str, Setting] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, path: str, value: Any, origin: str, *, text: bool = False) -> None:
        """Convert and keep `value`, or note the problem."""
        key = KEYS[path]
        try:
            self.settings[path] = Setting(convert(key, parse_text(key, value) if text else value), origin)
        except BadValue as error:
            self.problems += [f"{line} ({origin})" for line in error.lines]


def find_file(path: str | os.PathLike[str] | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The file to read: the one asked for, else ./needle-router.toml, else the user's, else none."""
    asked = path if path is not None else environ.get(ENV_CONFIG)
    if asked:
        return Path(asked).expanduser()
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    for candidate in (cwd / FILE_NAME, Path(home) / "needle-router" / "config.toml"):
        if candidate.is_file():
            return candidate
    return None


def read_file(path: Path | None) -> Source:
    """The settings of a TOML file."""
    source = Source()
    if path is None:
        return source
    try:
        with path.open("rb") as file:
            document = tomllib.loads(file.read(MAX_FILE_BYTES).decode("utf-8"))
    except OSError as error:
        source.problems.append(f"{path}: cannot be read: {error.strerror or error}")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        source.problems.append(f"{path}: not valid TOML: {error}")
    else:
        _take_table(document, source, f"file {path}")
    return source


def _take_table(document: Mapping[str, Any], source: Source, origin: str) -> None:
    for name, value in document.items():
        if name in KEYS:
            source.put(name, value, origin)
        elif name not in SECTIONS:
            source.problems.append(f"{unknown_key(name)} ({origin})")
        elif not isinstance(value, Mapping):
            source.problems.append(f"{name}: expected a table, [{name}], got a single value ({origin})")
        else:
            _take_section(name, value, source, origin)


def _take_section(section: str, table: Mapping[str, Any], source: Source, origin: str) -> None:
    for name, value in table.items():
        path = f"{section}.{name}"
        if path in KEYS:
            source.put(path, value, origin)
        else:
            source.problems.append(f"{unknown_key(path)} ({origin})")


def read_environment(environ: Mapping[str, str]) -> Source:
    """The settings of NEEDLE_ROUTER_* variables; an unknown one is a problem, so that a typo cannot be silent."""
    source = Source()
    for name, text in _ours(environ):
        if name not in ENV_KEYS:
            source.problems.append(f"{name}: unknown variable{did_you_mean(name, ENV_KEYS)}")
        else:
            source.put(ENV_KEYS[name], text, f"env {name}", text=True)
    for alias, path in ENV_ALIASES.items():
        full = KEYS[path].env
        if alias in environ and full in environ and environ[alias] != environ[full]:
            source.problems.append(f"{path}: {alias} and {full} differ; set one of them")
    return source


def _ours(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX) or name == ENV_CONFIG or _SERVICE_LINK.fullmatch(name):
            continue
        if name == "NEEDLE_ROUTER_PORT" and "://" in environ[name]:  # another link variable of Kubernetes
            continue
        yield name, environ[name]


def read_flags(flags: Mapping[str, object]) -> Source:
    """The settings of flags: path of key -> value; text is read as in the environment, other values as in a file."""
    source = Source()
    for path, value in flags.items():
        if path not in KEYS:
            source.problems.append(f"{unknown_key(path)} (flag --set)")
        else:
            source.put(path, value, f"flag {KEYS[path].flag}", text=isinstance(value, str))
    return source


def with_fallbacks(settings: dict[str, Setting], environ: Mapping[str, str]) -> list[str]:
    """Fill in what OPENAI_* variables say, where nothing of ours does; returns problems.

    OPENAI_BASE_URL names the upstream only when no source sets `upstream.base_url`: an explicit "" means "no
    upstream". OPENAI_API_KEY is read only where `inject_key` asks for a key and none is given.
    """
    source = Source()
    if environ.get("OPENAI_BASE_URL") and "upstream.base_url" not in settings:
        source.put("upstream.base_url", environ["OPENAI_BASE_URL"], "env OPENAI_BASE_URL", text=True)
    inject, key = settings.get("upstream.inject_key"), settings.get("upstream.api_key")
    wants_key = inject is not None and inject.value and not (key and key.value)
    if wants_key and environ.get("OPENAI_API_KEY"):
        source.put("upstream.api_key", environ["OPENAI_API_KEY"], "env OPENAI_API_KEY", text=True)
    settings.update(source.settings)
    return source.problems
