"""Which engine runs, down to its files: a tuned model under the same name must not inherit a certificate.

Files are told apart by size and by a sample of their bytes: retraining changes weights everywhere, and reading all of a
large archive would cost more than the rest of the start. Of what `needle-router pull` fetched the recorded hash counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from needle_router.config.schema import Engine as Settings
from needle_router.engine.archives import GENERATION_BY_MODEL, cactus_cache, rust_archive
from needle_router.engine.pins import read_pins
from needle_router.engine.session import LoadFailed

PACKAGES = {"native": "cactus-needle", "rust": "needle-rs"}
BLOCKS, BLOCK_BYTES = 64, 4096


class Identity:
    """The name of an engine, looked up once it is `ready`: before that its files may still be on their way."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], ready: Callable[[], bool]) -> None:
        self._settings, self._environ, self._ready = settings, environ, ready
        self._name: str | None = None

    def __call__(self) -> str:
        """See `identity`."""
        if self._name is not None:
            return self._name
        name = identity(self._settings, self._environ)
        if self._ready():
            self._name = name
        return name


def identity(settings: Settings, environ: Mapping[str, str]) -> str:
    """The engine's name for fingerprints, the same on every machine that runs the same files."""
    return "/".join((settings.backend, settings.model.rpartition("/")[2], *_parts(settings, environ)))


def _parts(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    package = PACKAGES.get(settings.backend)
    if package is not None:
        yield _version(package)
    if settings.tool_index:
        yield sampled(Path(settings.tool_index).expanduser())
    if settings.backend == "native":
        yield from _native(settings.model, environ)
    elif settings.backend == "rust":
        yield _rust(settings.model, environ)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _native(model: str, environ: Mapping[str, str]) -> Iterator[str]:
    generation = GENERATION_BY_MODEL.get(model)
    if generation is None:
        yield sampled(Path(model).expanduser())
        return
    for name in (f"NEEDLE{generation}_LIB_PATH", "NEEDLE_LIB_PATH"):
        if environ.get(name):
            yield sampled(Path(environ[name]))
    try:
        pins = read_pins(cactus_cache(environ))
    except LoadFailed:
        return
    yield from sorted(pin.installed_sha256[:16] for pin in pins if pin.installed.startswith(f"v{generation}/"))


def _rust(model: str, environ: Mapping[str, str]) -> str:
    try:
        return sampled(rust_archive(model, cache_root=cactus_cache(environ)).expanduser())
    except LoadFailed:
        return "none"


def sampled(path: Path) -> str:
    """16 hex digits of a file's size and of `BLOCKS` blocks spread over it; "none" where it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            digest = hashlib.sha256(str(size).encode())
            last = max(0, size - BLOCK_BYTES)
            for block in range(BLOCKS):
                file.seek(last * block // (BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
            return digest.hexdigest()[:16]
    except OSError:
        return "none"
