"""The flags that set configuration keys, the same for every command that has a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from needle_router.cli.exits import Exit, Stop
from needle_router.errors import ConfigError

if TYPE_CHECKING:
    from needle_router.config.load import Loaded

NOTHING: Mapping[str, str] = MappingProxyType({})


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Settings:
    """Flag values as text: configuration converts and checks them, so that all faults are told at once."""

    config: Annotated[str | None, Parameter(help="Configuration file (TOML).")] = None
    mode: Annotated[str | None, Parameter(help="off, shadow or on.")] = None
    host: Annotated[str | None, Parameter(help="Address to listen on.")] = None
    port: Annotated[str | None, Parameter(help="Port to listen on; 0 takes a free one.")] = None
    upstream: Annotated[str | None, Parameter(help='Base URL of the upstream; "" for Needle alone.')] = None
    backend: Annotated[str | None, Parameter(help="Engine backend: native, rust or scripted.")] = None
    model: Annotated[str | None, Parameter(help="needle-2, needle-3, tiny, or the path of a .cact file.")] = None
    workers: Annotated[str | None, Parameter(help="Engine processes.")] = None
    ledger: Annotated[str | None, Parameter(help='Path of the decision ledger; "off" for none.')] = None
    log_level: Annotated[str | None, Parameter(help="debug, info, warning or error.")] = None
    set: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set", negative=(), show_default=False, help="Any key, as section.key=value; may be repeated."
        ),
    ] = ()

    def flags(self) -> Mapping[str, str]:
        """Key path -> text of every flag that was given; a flag of its own beats `--set`."""
        from needle_router.config.keys import FLAGS

        given = dict(_assignment(text) for text in self.set)
        by_flag = {flag: path for path, flag in FLAGS.items()}
        for field in fields(self):
            path, value = by_flag.get("--" + field.name.replace("_", "-")), getattr(self, field.name)
            if path and value is not None:
                given[path] = value
        return given


def _assignment(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals:
        raise Stop(Exit.USAGE, f"--set {text}: expected section.key=value")
    return path.strip(), value


def loaded(settings: Settings | None, fallback: Mapping[str, str] = NOTHING, *, routes: bool = True) -> Loaded:
    """The configuration that `settings` lead to; stops with every problem when there is one.

    `fallback` holds values by key path for a command with defaults of its own. Without `routes` for a command that
    routes nothing, and so can do without the files of certificates.
    """
    from needle_router.config.load import load

    settings = settings or Settings()
    try:
        return load(settings.config, flags={**fallback, **settings.flags()}, routes=routes)
    except ConfigError as error:
        count = len(error.problems)
        title = f"the configuration has {count} problem{'s' if count != 1 else ''}:"
        raise Stop(Exit.USAGE, title, *(f"  {line}" for line in error.problems)) from None
