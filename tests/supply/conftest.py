"""A hub that holds the stand-in of the engine, and a command line in a home of its own that asks it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.conftest import TAGS, fake_libraries, native  # noqa: F401
from tests.supply.hub import REPOS, LoopbackHub, wheel

from needle_router.models import tiny_needle_path

SOURCES = Path(__file__).parents[2]


@pytest.fixture
def names():
    """Generation -> name of the wheel on the hub, and where the library goes."""
    from needle.agent import fetch

    from needle_router.supply.orders import order_for
    from needle_router.supply.platforms import tag_here

    return {generation: order_for(f"needle-{generation}", tag_here(), fetch).items for generation in TAGS}


@pytest.fixture
def hub(fake_libraries, names):  # noqa: F811
    """A running hub with both generations."""
    made = LoopbackHub()
    # The weights alone, for needle-rs: the demo model stands in for Needle's own, which is of the same kind.
    archive = tiny_needle_path().read_bytes()
    library = wheel(libneedle__so=fake_libraries[2].read_bytes())
    made.put(REPOS[2], {names[2][0].filename: library, "needle2.cact": archive})
    weights = TAGS[3].to_bytes(4, "little") + bytes(508)
    library = wheel(libneedle3__so=fake_libraries[3].read_bytes())
    made.put(REPOS[3], {names[3][0].filename: library, names[3][1].filename: weights})
    with made.running():
        yield made


class Home:
    """`needle-router` with a home, a cache of the hub and nothing else of this machine."""

    def __init__(self, folder, endpoint):
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NEEDLE", "OPENAI_", "HF_"))}
        path = os.pathsep.join((str(SOURCES / "router"), str(SOURCES / "policies")))
        self.environment = kept | {
            "HOME": str(folder),
            "PYTHONPATH": path,
            "HF_HOME": str(folder / "hf"),
            "HF_ENDPOINT": endpoint,
            "COLUMNS": "200",
        }
        self.root = folder / ".cache" / "cactus-needle"

    def start(self, *arguments, **variables):
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "needle_router", *arguments],
            cwd=self.folder,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments, timeout_s=60, **variables):
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=timeout_s)
        return process.returncode, out, err

    def installed(self, item):
        return self.root / item.installed

    def leftovers(self):
        """Files of ours that no finished pull leaves."""
        return [path for path in self.root.rglob("*") if path.name.endswith((".part", ".new"))]


@pytest.fixture
def home(tmp_path, hub):
    folder = tmp_path / "home"
    folder.mkdir()
    return Home(folder, hub.url)
