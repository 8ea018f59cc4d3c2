"""From a fetched file to one that is installed: taken out of its wheel, looked at, and moved into place at once.

A staged file stands beside its destination under another name, so that the last step is a rename: a reader, or a router
that starts at that moment, sees the old file or the new one.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from needle_router.engine.archives import archive_generation
from needle_router.engine.pins import sha256_of
from needle_router.engine.session import LoadFailed
from needle_router.supply.faults import NoRoom, Refused
from needle_router.supply.orders import Item

PART_SUFFIX = ".part"
#: No engine is near this size; a wheel that claims more is not unpacked.
MAX_BYTES = 2 << 30
#: How shared libraries begin: ELF, Mach-O (64 bit, little-endian), Mach-O for several architectures, PE.
LIBRARY_MAGICS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")


@dataclass(frozen=True, slots=True)
class Staged:
    """A file ready to be moved to `destination`."""

    part: Path
    destination: Path
    sha256: str

    def install(self) -> None:
        """Move it into place."""
        self.part.replace(self.destination)

    def discard(self) -> None:
        """Remove it, if it is still there."""
        self.part.unlink(missing_ok=True)


def stage(source: Path, item: Item, destination: Path, *, generation: int) -> Staged:
    """Put what `item` wants of `source` beside `destination`. Raises Refused or NoRoom, and leaves nothing then."""
    part = destination.with_name(f".{destination.name}{PART_SUFFIX}")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        if item.members:
            _unpack(source, item, part)
        else:
            with source.open("rb") as file:
                _write(file, part)
        _look(part, item, generation)
        return Staged(part, destination, sha256_of(part))
    except OSError as error:
        part.unlink(missing_ok=True)
        raise NoRoom(f"{destination} cannot be written: {error.strerror or error}") from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _unpack(source: Path, item: Item, part: Path) -> None:
    try:
        with zipfile.ZipFile(source) as wheel:
            names = set(wheel.namelist())
            member = next((name for name in item.members if name in names), None)
            if member is None:
                raise Refused(f"{item.filename} holds no {' and no '.join(item.members)}")
            if wheel.getinfo(member).file_size > MAX_BYTES:
                raise Refused(f"{member} in {item.filename} is larger than {MAX_BYTES >> 30} GB")
            with wheel.open(member) as file:
                _write(file, part)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise Refused(f"{item.filename} is no wheel: {error}") from error


def _write(file: IO[bytes], part: Path) -> None:
    with part.open("wb") as out:
        shutil.copyfileobj(file, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())


def _look(part: Path, item: Item, generation: int) -> None:
    if item.members:
        with part.open("rb") as file:
            if not file.read(4).startswith(LIBRARY_MAGICS):
                raise Refused(f"what {item.filename} holds is no shared library")
        return
    try:
        found = archive_generation(part)
    except LoadFailed as error:
        raise Refused(f"{item.filename} is not a .cact archive") from error
    if found != generation:
        raise Refused(f"{item.filename} is an archive of generation {found}, not {generation}")
