"""A small state in a file: written as a whole by one thread, so that a reader or a crash meets the old or the new one.

A request never waits for it. What changes within a second is written together, what must not be lost at once. A disk
that cannot be written costs the state after a restart and is told once, nothing more.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

logger = logging.getLogger("needle_router.standings")
GATHER_S = 1.0


class StateFile:
    """`path` None keeps nothing. `source` gives the state as JSON values, whenever it is written."""

    def __init__(self, path: Path | None, source: Callable[[], Any]) -> None:
        self.path = path
        self.source = source
        self._changed = threading.Event()
        self._urgent = threading.Event()
        self._writing = threading.Lock()
        self._dirty = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._failing = False

    def start(self) -> None:
        """Start the writer."""
        if self.path is not None and self._thread is None:
            self._closing = False
            self._thread = threading.Thread(target=self._run, name="standings", daemon=True)
            self._thread.start()

    def changed(self, *, urgent: bool = False) -> None:
        """The state is another than the written one."""
        self._dirty = True
        if urgent:
            self._urgent.set()
        self._changed.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what has changed and stop, within `timeout_s` seconds."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing = True
        self._urgent.set()
        self._changed.set()
        thread.join(timeout_s)

    def write(self) -> bool:
        """Write the state now; False where that failed, which is told once."""
        if self.path is None:
            return True
        with self._writing:
            self._dirty = False
            try:
                write_whole(self.path, self.source())
            except OSError as error:
                if not self._failing:
                    logger.warning("the canary's state cannot be written, a restart will not know it: %s", error)
                self._failing = True
            else:
                self._failing = False
        return not self._failing

    def _run(self) -> None:
        closing = False
        while not closing:
            self._changed.wait()
            self._urgent.wait(GATHER_S)
            self._urgent.clear()
            self._changed.clear()
            closing = self._closing
            if self._dirty:
                self.write()


def write_whole(path: Path, state: Any) -> None:
    """Put the state in place, readable by its owner alone; raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(json.dumps(state).encode())
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def read_whole(path: Path) -> Any:
    """The state, None where there is no file; raises `OSError` and `ValueError`."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except RecursionError:
        raise ValueError("nested too deeply") from None
