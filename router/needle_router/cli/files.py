"""Files that commands write: in place as a whole, so that no reader meets half of one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from needle_router.cli.exits import Exit, Stop
from needle_router.ledger.store import LedgerError


def write_private(path: Path, content: bytes) -> None:
    """Put a file in place, readable by its owner alone; stops where it cannot be written."""
    with private_file(path) as whole:
        whole.write_bytes(content)


@contextmanager
def private_file(path: Path) -> Iterator[Path]:
    """An empty file to be filled, readable by its owner alone, that takes the place of `path` after the block."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".needle-router-") as folder:
            whole = Path(folder, path.name)
            whole.touch(0o600)
            yield whole
            whole.replace(path)
    except LedgerError:
        raise  # an OSError too, but about what is read
    except OSError as error:
        raise Stop(Exit.FAILED, f"{path} cannot be written: {error.strerror or error}") from None
