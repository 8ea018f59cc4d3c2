"""What was fetched, by hash: the lock file beside the engine files, and the check against it before anything is loaded.

A native library runs with the rights of the router, so whoever can change it owns the machine. `needle-router pull`
records repository, revision and SHA-256 of each file when it is first fetched (trust on first use); from then on only
those very bytes are installed, and only those are loaded. Files that were put there by other means are not recorded,
and not checked.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from needle_router.engine.session import LoadFailed

LOCK_NAME = "needle-router.lock.json"
VERSION = 1


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fetched file. `sha256` is that of the file on the hub, `installed_sha256` that of what was taken out of it.

    `installed` is a path relative to the folder of the lock file; `revision` is a commit.
    """

    repo: str
    revision: str
    filename: str
    sha256: str
    installed: str
    installed_sha256: str


class LockFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lock file as it stands on disk."""

    version: int
    files: tuple[Pin, ...] = ()


def read_pins(root: Path) -> tuple[Pin, ...]:
    """The pins of the lock file in `root`; none when there is no file. Raises LoadFailed for one that is unreadable."""
    path = root / LOCK_NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=LockFile)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        raise LoadFailed(f"the lock file {path} cannot be read: {error}") from error
    if found.version != VERSION:
        raise LoadFailed(f"the lock file {path} has version {found.version}; this router reads {VERSION}")
    return found.files


def write_pins(root: Path, pins: Iterable[Pin]) -> None:
    """Replace the lock file in `root`; a reader sees the old or the new one, never half of it."""
    path, new = root / LOCK_NAME, root / f".{LOCK_NAME}.new"
    ordered = sorted(pins, key=lambda pin: (pin.repo, pin.filename))
    text = msgspec.json.format(msgspec.json.encode(LockFile(VERSION, tuple(ordered))), indent=2)
    with new.open("wb") as out:
        out.write(text + b"\n")
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)


def check_pins(files: Iterable[Path], root: Path) -> None:
    """Raise LoadFailed when a recorded file under `root` has other bytes than those recorded."""
    by_path = {root / pin.installed: pin for pin in read_pins(root)}
    for file in files:
        pin = by_path.get(file)
        if pin is None:
            continue
        found = sha256_of(file)
        if found != pin.installed_sha256:
            raise LoadFailed(
                f"{file} is not the file that was fetched: sha256 {found}, recorded {pin.installed_sha256} in "
                f"{root / LOCK_NAME}. It is not loaded; `needle-router pull` puts the recorded one back"
            )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hex. Raises LoadFailed when it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LoadFailed(f"{path} cannot be read: {error.strerror}") from error
