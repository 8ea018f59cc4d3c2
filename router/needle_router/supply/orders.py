"""What to fetch for a model: names on the hub, and where each file goes. No network, no disk.

The names are those of the installed cactus-needle package: an engine of another version than the package's own binding
must not be mixed with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from needle_router.engine.archives import GENERATION_BY_MODEL
from needle_router.supply.faults import Unsupported


@dataclass(frozen=True, slots=True)
class Item:
    """One file. `members` are the names to look for inside a wheel; empty: the file itself is installed.

    `installed` is relative to the cache folder of cactus-needle.
    """

    filename: str
    installed: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """The files of one model, all from one repository."""

    model: str
    generation: int
    repo: str
    items: tuple[Item, ...]


def order_for(model: str, tag: str, fetch: Any) -> Order:
    """The order for the native backend on a platform; `fetch` is the module `needle.agent.fetch`."""
    generation = _generation(model)
    version = fetch.engine_version(generation)
    folder = f"v{generation}/{version}"
    library = PurePosixPath(fetch.lib_name(generation, tag))
    # From generation 3 on, the library's name in the wheel carries the generation.
    numbered = f"needle/{library.stem}{generation}{library.suffix}"
    wheel = Item(fetch.engine_wheel(version, tag, generation), f"{folder}/{library}", (numbered, f"needle/{library}"))
    # Generation 2 has its weights inside the library.
    weights = weights_for(model, fetch).items if generation >= 3 else ()
    return Order(model, generation, fetch.engine_repo(generation), (wheel, *weights))


def weights_for(model: str, fetch: Any) -> Order:
    """The order for the rust backend: the weights alone, the same on every platform; no native library."""
    generation = _generation(model)
    weights = fetch.base_weights(generation)
    item = Item(weights, f"v{generation}/{fetch.engine_version(generation)}/{weights}")
    return Order(model, generation, fetch.engine_repo(generation), (item,))


def _generation(model: str) -> int:
    generation = GENERATION_BY_MODEL.get(model)
    if generation is None:
        raise Unsupported(f"{model} is not on the hub; {' and '.join(GENERATION_BY_MODEL)} are")
    return generation
