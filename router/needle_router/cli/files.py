"""Files that commands write: in place as a whole, so that no reader meets half of one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from needle_router.cli.exits import Exit, Stop


def write_private(path: Path, content: bytes) -> None:
    """Put a file in place, readable by its owner alone; stops where it cannot be written."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".needle-router-") as folder:
            whole = Path(folder, path.name)
            whole.touch(0o600)
            whole.write_bytes(content)
            whole.replace(path)
    except OSError as error:
        raise Stop(Exit.FAILED, f"{path} cannot be written: {error.strerror}") from None
