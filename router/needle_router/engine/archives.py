"""Where engine libraries and `.cact` archives are found on this machine; no network, nothing is loaded.

The places are those of the cactus-needle package, so what `needle-router pull` or that package itself has fetched is
found by both: `NEEDLE2_LIB_PATH` / `NEEDLE3_LIB_PATH`, then `~/.cache/cactus-needle/v<generation>/<engine version>/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from needle_router.engine.session import LoadFailed
from needle_router.models import tiny_needle_path

#: The first four bytes of a `.cact` archive, little-endian.
GENERATION_BY_TAG = {0x05E12A83: 2, 0x05E12A84: 3}
GENERATION_BY_MODEL = {"needle-2": 2, "needle-3": 3}
TINY = "tiny"


@dataclass(frozen=True, slots=True)
class NativeFiles:
    """What the native backend loads; `weights` is a tuned archive, `base` the generation's own, where it is a file."""

    generation: int
    library: Path
    weights: Path | None = None
    base: Path | None = None


def native_files(model: str, environ: Mapping[str, str], *, cache: Path, library_name: str) -> NativeFiles:
    """The files behind `engine.model` for the native backend; `cache` is the newest engine's folder.

    Raises LoadFailed with the command that fetches what is missing.
    """
    generation = generation_of(model)
    library = _library(generation, environ, cache / library_name)
    if model not in GENERATION_BY_MODEL:
        return NativeFiles(generation, library, Path(model))
    # Generation 2 has its weights inside the library.
    weights = cache / "needle3.cact"
    if generation >= 3 and not weights.is_file():
        raise LoadFailed(f"the weights of {model} are not at {weights}: {_remedy(model)}")
    return NativeFiles(generation, library, base=weights if generation >= 3 else None)


def generation_of(model: str) -> int:
    """The generation that a model name or the tag of a `.cact` file stands for. Raises LoadFailed."""
    if model in GENERATION_BY_MODEL:
        return GENERATION_BY_MODEL[model]
    if model == TINY:
        raise LoadFailed('engine.model "tiny" runs on the rust backend: set engine.backend = "rust"')
    return archive_generation(Path(model))


def archive_generation(path: Path) -> int:
    """The generation of a `.cact` file, read from its tag. Raises LoadFailed."""
    try:
        with path.open("rb") as archive:
            tag = archive.read(4)
    except OSError as error:
        raise LoadFailed(f"engine.model {path} cannot be read: {error.strerror}") from error
    number = int.from_bytes(tag, "little")
    if len(tag) < 4 or number not in GENERATION_BY_TAG:
        raise LoadFailed(f"engine.model {path} is not a .cact archive (tag 0x{number:08x})")
    return GENERATION_BY_TAG[number]


def rust_archive(model: str, *, cache_root: Path) -> Path:
    """The `.cact` file behind `engine.model` for the rust backend. Raises LoadFailed."""
    if model == TINY:
        return tiny_needle_path()
    generation = GENERATION_BY_MODEL.get(model)
    if generation is None:
        return Path(model)
    # The engine's version is a folder name; the newest one wins.
    found = sorted(cache_root.glob(f"v{generation}/*/needle{generation}.cact"))
    if not found:
        remedy = _remedy(model, backend="rust")
        raise LoadFailed(f"the weights of {model} are not under {cache_root}/v{generation}: {remedy}")
    return found[-1]


def cactus_cache(environ: Mapping[str, str]) -> Path:
    """The cache folder of the cactus-needle package."""
    return Path(environ.get("HOME") or Path.home()) / ".cache" / "cactus-needle"


def _library(generation: int, environ: Mapping[str, str], cached: Path) -> Path:
    names = (f"NEEDLE{generation}_LIB_PATH", *(("NEEDLE_LIB_PATH",) if generation == 2 else ()))
    named = next(((name, environ[name]) for name in names if environ.get(name)), None)
    if named is not None:
        if not Path(named[1]).is_file():
            raise LoadFailed(f"{named[0]} names {named[1]}, where there is no file")
        return Path(named[1])
    if not cached.is_file():
        raise LoadFailed(
            f"the engine library of needle-{generation} is not at {cached}: {_remedy(f'needle-{generation}')}"
        )
    return cached


def _remedy(model: str, *, backend: str = "native") -> str:
    # What the native backend needs is the default of the command.
    flag = "" if backend == "native" else f" --backend {backend}"
    return f"run `needle-router pull {model}{flag}`"


def model_to_pull(detail: str) -> str | None:
    """The model that a failed load asks for, if fetching it is the remedy."""
    return next(
        (
            model
            for model in GENERATION_BY_MODEL
            if any(detail.endswith(f": {_remedy(model, backend=backend)}") for backend in ("native", "rust"))
        ),
        None,
    )
