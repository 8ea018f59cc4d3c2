"""The C stand-in for the vendor's library, built once; and engine settings and environments that use it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from needle_router.config.schema import Engine

SOURCE = Path(__file__).parent.parent / "native" / "fakeneedle.c"
TAGS = {2: 0x05E12A83, 3: 0x05E12A84}


@pytest.fixture(scope="session")
def fake_libraries(tmp_path_factory):
    """Generation -> shared library."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is needed to build the stand-in for the engine library")
    folder = tmp_path_factory.mktemp("fakeneedle")
    built = {}
    for generation in TAGS:
        built[generation] = folder / f"libfakeneedle{generation}.so"
        command = [gcc, "-shared", "-fPIC", "-O1", f"-DGENERATION={generation}", "-o", built[generation], SOURCE]
        subprocess.run(command, check=True)
    return built


@pytest.fixture
def native(fake_libraries, tmp_path):
    """A function: generation and script -> settings and environment of a native engine on the stand-in."""
    return Native(fake_libraries, tmp_path)


class Native:
    def __init__(self, libraries, folder):
        self.libraries = libraries
        self.folder = folder
        self.log = folder / "fakeneedle.log"
        self.home = folder / "home"

    def __call__(self, generation, script="", *, model=None, **settings):
        self.home.mkdir(exist_ok=True)
        if generation == 3:
            self.put_weights(3)
        path = self.folder / "fakeneedle.tsv"
        path.write_bytes(script if isinstance(script, bytes) else script.encode())
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            f"NEEDLE{generation}_LIB_PATH": str(self.libraries[generation]),
            "NEEDLE_FAKE_SCRIPT": str(path),
            "NEEDLE_FAKE_LOG": str(self.log),
        }
        return Engine(backend="native", model=model or f"needle-{generation}", **settings), environ

    def put_weights(self, generation):
        from needle.agent import fetch

        folder = self.home / ".cache" / "cactus-needle" / f"v{generation}" / fetch.engine_version(generation)
        folder.mkdir(parents=True, exist_ok=True)
        self.archive(generation, folder / f"needle{generation}.cact")

    def archive(self, generation, path):
        """The smallest file that the stand-in takes for weights."""
        path.write_bytes(TAGS[generation].to_bytes(4, "little") + bytes(508))
        return path

    def entries(self):
        """(pid, thread, operation, argument) of every entry into the library."""
        return [tuple(line.split("\t", 3)) for line in self.log.read_text().splitlines()]
