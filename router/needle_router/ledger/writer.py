"""The queue and the thread that writes it: `put` never waits, and nothing that happens here reaches a request.

A queue that is full refuses records. A store that loses records says so, and one that is away (a database server) keeps
the writer waiting, longer each time, while the queue fills. Whatever was not written is counted.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time

from needle_router.ledger.place import Place
from needle_router.ledger.rows import row_of
from needle_router.ledger.store import BadRecord, LedgerAway, LedgerError, Store
from needle_router.ledger.stores import store_of
from needle_router.records import DecisionRecord

QUEUE_LIMIT = 10_000
BATCH = 500
GATHER_S = 0.05
PRUNE_EVERY_S = 3600.0
#: Between two tries to reach a store that is away: doubled each time, up to the second.
RETRY_S = (0.5, 30.0)
logger = logging.getLogger("needle_router.ledger")
Batch = list[DecisionRecord]


class Ledger:
    """Writes records; `place` None keeps nothing. `instance` names this router in what several of them write."""

    def __init__(
        self,
        place: Place | None,
        *,
        retention_days: float = 30,
        queue_limit: int = QUEUE_LIMIT,
        instance: str = "",
        store: Store | None = None,
        retry_s: tuple[float, float] = RETRY_S,
    ) -> None:
        self.path = place
        self.retention_s = retention_days * 86_400
        #: Why records are lost just now; "" while none are.
        self.detail = ""
        #: Records that are in the store for good.
        self.written = 0
        self.instance = instance
        self._store = store if store is not None or place is None else store_of(place)
        # One counter per thread: += on a shared one loses counts.
        self._refused = 0
        self._lost = 0
        self._prune_at = 0.0
        self._retry_s = retry_s
        self._away: LedgerAway | None = None
        self._closing = threading.Event()
        self._queue: queue.Queue[DecisionRecord | None] = queue.Queue(queue_limit)
        self._thread: threading.Thread | None = None

    @property
    def dropped(self) -> int:
        """Records that were not written: refused by a full queue, or lost with a store that could not be written."""
        return self._refused + self._lost

    @property
    def waiting(self) -> int:
        """Records in the queue."""
        return self._queue.qsize()

    @property
    def state(self) -> str:
        """off, ok or degraded, for /readyz."""
        if self.path is None:
            return "off"
        return "degraded" if self.detail else "ok"

    def follow(self, other: Ledger) -> None:
        """Go on with the retention and the name of `other`, which is configured anew and has the same place."""
        self.retention_s, self.instance = other.retention_s, other.instance

    def start(self) -> None:
        """Start the writer thread; returns at once, whatever state the store is in."""
        if self._store is not None and self._thread is None:
            self._closing.clear()
            self._thread = threading.Thread(target=self._run, args=(self._store,), name="ledger", daemon=True)
            self._thread.start()

    def put(self, record: DecisionRecord) -> None:
        """Queue a record, or drop and count it."""
        if self._thread is None:
            return
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._refused += 1

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued and stop, within `timeout_s` seconds."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        deadline_s = time.monotonic() + timeout_s
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        thread.join(max(0.0, deadline_s - time.monotonic()))
        if thread.is_alive():
            logger.warning("the ledger did not end within %g s: some records may be missing", timeout_s)

    # ---------------------------------------------------------------- the thread

    def _run(self, store: Store) -> None:
        stopping = False
        while not stopping:
            batch, stopping = self._batch()
            try:
                self._deliver(store, batch)
                self._prune(store)
            except Exception:  # a fault of ours must not end the thread either
                logger.exception("a fault of the ledger's writer")
        store.close()

    def _batch(self) -> tuple[Batch, bool]:
        """The waiting records, at most `BATCH`, and whether the end was asked for."""
        batch: Batch = []
        item = self._queue.get()
        if self._queue.qsize() < BATCH:
            # A transaction costs as much as many rows: let a few requests gather.
            self._closing.wait(GATHER_S)
        while item is not None:
            batch.append(item)
            if len(batch) == BATCH:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _deliver(self, store: Store, batch: Batch) -> None:
        """Write the batch, or count it as lost."""
        try:
            self._write(store, batch)
        except BadRecord as error:
            if len(batch) > 1:
                for record in batch:
                    self._deliver(store, [record])
            else:
                self._lost += 1
                logger.warning("a record cannot be stored, and is dropped: %s", error)
        except LedgerError as error:
            # In this order: whoever sees the count can ask why.
            self._tell(error)
            self._lost += len(batch)
        except BaseException:
            self._lost += len(batch)
            raise

    def _write(self, store: Store, batch: Batch) -> None:
        """Write the batch; a store that is away is tried until it is back, or until we are to stop."""
        if not batch:
            return
        rows = [row_of(record, self.instance) for record in batch]
        wait_s, longest_s = self._retry_s
        while True:
            if self._away is not None and self._closing.is_set():
                raise self._away
            try:
                store.write(rows)
            except LedgerAway as error:
                self._away = error
                self._tell(error)
                self._closing.wait(wait_s)
                wait_s = min(wait_s * 2, longest_s)
            else:
                self._recovered()
                self.written += len(batch)
                return

    def _recovered(self) -> None:
        if self.detail:
            logger.info("the ledger is written again")
        self.detail, self._away = "", None

    def _tell(self, error: LedgerError) -> None:
        if not self.detail:
            logger.warning("the ledger at %s cannot be written, records are dropped: %s", self.path, error)
        self.detail = error.shown

    def _prune(self, store: Store) -> None:
        if time.monotonic() < self._prune_at or self.detail:
            return
        self._prune_at = time.monotonic() + PRUNE_EVERY_S
        try:
            store.prune(time.time() - self.retention_s)
        except LedgerError as error:
            logger.warning("old records could not be removed from the ledger: %s", error)
