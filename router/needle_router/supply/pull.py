"""One pull: what is recorded stays as recorded, what is new is recorded, and nothing is installed in between.

    read the lock file -> all in place? done
                       -> fetch at the recorded revision (or, the first time, at the branch's present commit)
                       -> hash, unpack, look, hash -> refuse what differs -> record -> move into place

Recording comes before moving: if the machine stops between the two, the old file no longer matches and is not loaded,
and the next pull finishes the work. One pull runs at a time in a cache folder; another waits, then finds all in place.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from needle_router.engine.pins import Pin, read_pins, sha256_of, write_pins
from needle_router.engine.session import LoadFailed
from needle_router.supply.faults import NoRoom, NotThere, Refused, SupplyFault
from needle_router.supply.hub import Hub
from needle_router.supply.orders import Item, Order
from needle_router.supply.staging import PART_SUFFIX, Staged, stage

log = logging.getLogger("needle_router.supply")

BRANCH = "main"
GUARD_NAME = ".needle-router.pull.lock"
#: Longer than any download that makes sense.
GUARD_TIMEOUT_S = 3600.0
GUARD_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did. `first_use` says that hashes were recorded which nobody had vouched for."""

    pins: tuple[Pin, ...]
    fetched: bool
    first_use: bool = False


def pull(order: Order, root: Path, hub: Hub, *, update: bool = False) -> Pulled:
    """Bring the files of `order` into the cache folder `root`. Raises SupplyFault; installed files then stay.

    `update` forgets what was recorded for this order, and records what the hub has now.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(root):
            return _pull(order, root, hub, update=update)
    except LoadFailed as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise NoRoom(f"{root} cannot be written: {error.strerror or error}") from error


def _pull(order: Order, root: Path, hub: Hub, *, update: bool) -> Pulled:
    recorded = {(pin.repo, pin.filename): pin for pin in read_pins(root)}
    known = {item: recorded.get((order.repo, item.filename)) for item in order.items}
    pins = [pin for pin in known.values() if pin is not None]
    if not update and len(pins) == len(order.items) and all(in_place(pin, root) for pin in pins):
        return Pulled(tuple(pins), fetched=False)
    if update:
        known = dict.fromkeys(order.items)
    with _staged(order, root, hub, known) as ready:
        new = [pin for pin, _ in ready]
        recorded |= {(pin.repo, pin.filename): pin for pin in new}
        write_pins(root, recorded.values())
        for _, staged in ready:
            staged.install()
    return Pulled(tuple(new), fetched=True, first_use=any(pin is None for pin in known.values()))


def in_place(pin: Pin, root: Path) -> bool:
    """Whether the recorded bytes stand where they belong."""
    path = root / pin.installed
    return path.is_file() and sha256_of(path) == pin.installed_sha256


@contextlib.contextmanager
def _staged(order: Order, root: Path, hub: Hub, known: dict[Item, Pin | None]) -> Iterator[list[tuple[Pin, Staged]]]:
    """Every file of the order, fetched and checked; what is not installed in the block is removed."""
    branch = hub.commit_of(order.repo, BRANCH) if None in known.values() else ""
    with contextlib.ExitStack() as stack:
        ready = []
        for item, pin in known.items():
            new, staged = _one(order, item, pin, root, hub, revision=pin.revision if pin else branch)
            stack.callback(staged.discard)
            ready.append((new, staged))
        yield ready


def _one(order: Order, item: Item, pin: Pin | None, root: Path, hub: Hub, *, revision: str) -> tuple[Pin, Staged]:
    log.info("fetching %s of %s at %s", item.filename, order.repo, revision)
    source, sha256 = _source(order, item, pin, hub, revision)
    staged = stage(source, item, root / item.installed, generation=order.generation)
    new = Pin(order.repo, _commit(source, revision), item.filename, sha256, item.installed, staged.sha256)
    if pin is not None and pin.installed_sha256 != staged.sha256:
        staged.discard()
        raise _changed(item, "its content", pin.installed_sha256, staged.sha256)
    return new, staged


def _source(order: Order, item: Item, pin: Pin | None, hub: Hub, revision: str) -> tuple[Path, str]:
    """The file as the hub has it, and its hash. Raises Refused when that is not the recorded one."""
    try:
        source = hub.fetch(order.repo, item.filename, revision)
        sha256 = sha256_of(source)
        if pin is not None and sha256 != pin.sha256:
            # The hub's cache on this machine may be at fault; the hub itself is asked before it is blamed.
            source = hub.fetch(order.repo, item.filename, revision, again=True)
            sha256 = sha256_of(source)
    except NotThere as fault:
        if pin is None:
            raise
        raise NotThere(f"{fault}; this revision was recorded when it was first fetched") from fault
    if pin is not None and sha256 != pin.sha256:
        raise _changed(item, item.filename, pin.sha256, sha256)
    return source, sha256


def _changed(item: Item, what: str, recorded: str, found: str) -> SupplyFault:
    return Refused(
        f"{what} on the hub has changed: sha256 {found}, recorded {recorded}. {item.installed} stays as it is. If the "
        "change is known and wanted, `needle-router pull --update` records it"
    )


def _commit(source: Path, revision: str) -> str:
    """The commit that a file of the hub's cache belongs to: .../snapshots/<commit>/<filename>."""
    parts = source.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else revision


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold the folder's guard; the system releases it when the process ends, however it ends."""
    from filelock import FileLock, Timeout

    guard = FileLock(root / GUARD_NAME)
    try:
        guard.acquire(timeout=0)
    except Timeout:
        log.info("another pull is at work in %s; waiting for it", root)
        try:
            guard.acquire(timeout=GUARD_TIMEOUT_S, poll_interval=GUARD_POLL_S)
        except Timeout:
            raise NoRoom(f"another pull has held {root / GUARD_NAME} for {GUARD_TIMEOUT_S:.0f} s") from None
    try:
        for left in root.glob(f"v*/*/.*{PART_SUFFIX}"):
            left.unlink(missing_ok=True)
        yield
    finally:
        guard.release()
