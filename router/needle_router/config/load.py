"""Flag over environment over file over default; every problem at once.

Nothing stops at the first fault: each source is read whole, each value is converted alone, and the checks that look
at several keys run on what could be converted. Whoever has five typos sees five lines.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from needle_router.config.checks import check
from needle_router.config.keys import KEYS, SECTIONS
from needle_router.config.schema import Config
from needle_router.config.sources import Setting, find_file, read_environment, read_file, read_flags, with_fallbacks
from needle_router.errors import ConfigError

NO_FLAGS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checked configuration, where each key's value came from, and the file that was read (None: no file).

    `origins` maps a key path such as `server.port` to `default`, `file F`, `env NAME` or `flag --x`.
    """

    config: Config
    origins: Mapping[str, str]
    path: Path | None


def load_config(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] = NO_FLAGS,
    embedded: bool = False,
) -> Config:
    """The configuration from file, environment and flags; raises `ConfigError` with every problem.

    `path` None searches $NEEDLE_ROUTER_CONFIG, ./needle-router.toml and $XDG_CONFIG_HOME/needle-router/config.toml.
    `flags` maps key paths to values. `embedded` is for a router inside somebody's app: OPENAI_BASE_URL is not an
    upstream there, and what concerns listening is not checked.
    """
    return load(path, environ=environ, flags=flags, embedded=embedded).config


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] = NO_FLAGS,
    embedded: bool = False,
    routes: bool = True,
) -> Loaded:
    """As `load_config`, with the origin of every value; without `routes` for a command that routes nothing."""
    environ = os.environ if environ is None else environ
    file = find_file(path, environ, Path.cwd())
    settings: dict[str, Setting] = {}
    problems: list[str] = []
    for source in (read_file(file), read_environment(environ), read_flags(flags)):
        settings.update(source.settings)
        problems += source.problems
    if not embedded:
        problems += with_fallbacks(settings, environ)
    config = assemble({key: setting.value for key, setting in settings.items()})
    problems += check(config, embedded=embedded, routes=routes)
    if problems:
        raise ConfigError(problems)
    origins = {key: settings[key].origin if key in settings else "default" for key in KEYS}
    return Loaded(config, MappingProxyType(origins), file)


def named_keys(
    path: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] = NO_FLAGS,
) -> frozenset[str]:
    """The key paths that file, environment or flags set, whatever to; the arguments are those of `load`."""
    environ = os.environ if environ is None else environ
    file = find_file(path, environ, Path.cwd())
    return frozenset().union(
        *(source.settings for source in (read_file(file), read_environment(environ), read_flags(flags)))
    )


def assemble(values: Mapping[str, Any]) -> Config:
    """A `Config` from converted values by key path; the rest are defaults."""
    top: dict[str, Any] = {path: value for path, value in values.items() if "." not in path}
    for section in SECTIONS:
        inside = {path.partition(".")[2]: value for path, value in values.items() if path.startswith(section + ".")}
        if inside:
            top[section] = msgspec.structs.replace(getattr(DEFAULTS, section), **inside)
    return Config(**top)


DEFAULTS = Config()
