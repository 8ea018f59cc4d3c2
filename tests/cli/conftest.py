"""The command line as users run it: a process of its own, an empty HOME, no variable of ours from outside."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-W", "error", "-m", "needle_router")
SOURCES = Path(__file__).parents[2]
LISTENING = re.compile(r"export OPENAI_BASE_URL=(http://\S+)/v1")


def clean_environment(home):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NEEDLE_ROUTER_", "OPENAI_", "XDG_"))}
    path = os.pathsep.join((str(SOURCES / "router"), str(SOURCES / "policies")))
    return kept | {"HOME": str(home), "PYTHONPATH": path, "COLUMNS": "200"}


class Cli:
    """Runs `needle-router` in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = clean_environment(folder)

    def __call__(self, *arguments, stdin=b"", timeout_s=60, **variables):
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment | variables,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    @contextmanager
    def serving(self, *arguments, command="serve", within=(), **variables):
        """A running command that has said where it listens; killed after the block if it still runs.

        `within` is what comes before it on the command line.
        """
        log = self.folder / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*within, *COMMAND, command, *arguments],
                cwd=self.folder,
                env=self.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            found = until(lambda: LISTENING.search(log.read_text()) or process.poll() is not None, log.read_text)
            assert found is not True, f"it ended: {log.read_text()}"
            yield Serving(process, found[1], log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(10)


class Serving:
    """A process that serves."""

    def __init__(self, process, url, log):
        self.process, self.url, self.log = process, url, log

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def until_ended(self, timeout_s=20):
        return self.process.wait(timeout_s)


def until(condition, explain=lambda: "", *, timeout_s=30.0):
    """What `condition` returns once it is true; fails with `explain()` after the deadline."""
    deadline = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < deadline, explain()
        time.sleep(0.01)
    return result


@pytest.fixture
def cli(tmp_path):
    return Cli(tmp_path)
