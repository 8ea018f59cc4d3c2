"""`config check` and `config show`."""

from __future__ import annotations

from needle_router.cli.exits import Exit
from needle_router.cli.options import Settings, loaded
from needle_router.config.show import toml_lines


def check(settings: Settings | None) -> Exit:
    """Load the configuration; the problems, if any, are told by `loaded`."""
    found = loaded(settings)
    print(f"ok: {found.path or 'no configuration file; environment, flags and defaults only'}")
    return Exit.OK


def show(settings: Settings | None, *, effective: bool) -> Exit:
    """Print TOML with the origin of each value."""
    found = loaded(settings)
    lines = list(toml_lines(found.config, found.origins, all_keys=effective))
    if not lines:
        print("# every key is at its default; --effective shows them")
    for line in lines:
        print(line)
    return Exit.OK
