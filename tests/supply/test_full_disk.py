"""A full disk under the engine's files: said once, requests pass, nothing half is left, and with room it works.

The disk is a real one of a megabyte, in memory, mounted where only the command under test sees it.
"""

import os
import shutil
import subprocess
import sys

import pytest
from tests.supply.hub import REPOS, wheel
from tests.supply.test_serve import FROM_UPSTREAM, ask, engine_of, serve, upstream, wait_for

__all__ = ["serve", "upstream"]
SMALL = ["unshare", "--map-root-user", "--mount"]
MOUNT = 'mkdir -p "$0" && mount -t tmpfs -o size=1m tmpfs "$0"'


def can_mount():
    """Whether this machine lets a process have mounts of its own."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*SMALL, "sh", "-c", MOUNT, "/mnt"], capture_output=True, timeout=20).returncode == 0


pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not can_mount(), reason="a small disk needs unshare and the right to mount"),
]


@pytest.fixture
def large(hub, names):
    """The engine on the hub is larger than the disk."""
    (item,) = names[2]
    hub.put(REPOS[2], {item.filename: wheel(libneedle__so=b"\x7fELF" + os.urandom(3 << 20))})
    return item


def in_small(home, where, *lines):
    """Run shell lines beside a small disk at `where`; what each printed, and the exit code that it wrote."""
    command = [*SMALL, "sh", "-c", "\n".join((MOUNT, *lines)), str(where)]
    return subprocess.run(command, env=home.environment, cwd=home.folder, capture_output=True, text=True, timeout=120)


PULL = '"$PYTHON" -W error -m needle_router pull; echo "ended with $?"'
LEFT = 'echo "files: $(find "$0" -type f -size +0)"'
ROOM = 'mount -o remount,size=32m "$0"'


@pytest.mark.parametrize(
    "place, said",
    [
        pytest.param((".cache", "cactus-needle"), "libneedle.so cannot be written: No space left", id="engine"),
        pytest.param(("hf",), "cannot be stored in the cache of huggingface_hub: No space left", id="the hub's cache"),
    ],
)
def test_a_pull_onto_a_full_disk_says_so_leaves_nothing_half_and_succeeds_with_room(home, large, place, said):
    home.environment["PYTHON"] = sys.executable
    done = in_small(home, home.folder.joinpath(*place), PULL, LEFT, ROOM, PULL)
    first, files, second = (line for line in done.stdout.splitlines() if line.startswith(("ended", "files")))
    assert (first, second) == ("ended with 4", "ended with 0"), done.stderr
    assert said in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("needle-router: ")]) == 1
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert "libneedle.so" not in files
    assert ".part" not in files


def test_a_router_whose_engine_finds_no_room_passes_everything_on_and_says_why(home, serve, large):
    with serve(within=(*SMALL, "sh", "-c", f'{MOUNT} && exec "$@"', str(home.root))) as running:
        wait_for(running, lambda engine: "No space left on device" in engine.get("detail", ""))
        assert engine_of(running)["state"] == "failed"
        assert ask(running)[0::2] == ("upstream", FROM_UPSTREAM)
        lines = [line for line in running.log.read_text().splitlines() if "No space left" in line]
        assert len(lines) == 1
        assert "needle-2 was not fetched, next try in 30 s: " in lines[0]
        running.process.terminate()
        assert running.until_ended() == 0
