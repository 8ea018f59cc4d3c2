"""A real PostgreSQL server of the tests' own, and everything that can befall it."""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.servers import free_port

from needle_router.ledger import Database

PASSWORD = "p@ss/w?rd#1"
OWNER = "router"


def binaries():
    """Where the server's programs are: Debian keeps them by version, off the path."""
    by_version = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = by_version[-1] if by_version else shutil.which("initdb")
    return Path(found).parent if found else None


class Server:
    """One server on loopback; it refuses to run as root, so then it runs as somebody else."""

    def __init__(self, folder, programs):
        self.folder, self.programs, self.port = folder, programs, free_port()
        self._as = {}
        if os.geteuid() == 0:
            other = next(pwd.getpwnam(name) for name in ("postgres", "nobody") if _known(name))
            os.chown(folder, other.pw_uid, other.pw_gid)
            self._as = {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
        self._numbers = itertools.count()
        self._process = None

    def make(self):
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        if self._as:
            os.chown(secret, self._as["user"], self._as["group"])
        command = [self.programs / "initdb", "-D", self.folder / "data", "-U", OWNER, "--pwfile", secret]
        command += ["-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=self.folder, **self._as)

    def start(self):
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder, "fsync": "off"}
        command = [self.programs / "postgres", "-D", self.folder / "data", "-p", str(self.port)]
        command += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._as)
        until(self._answers, 30)

    def _answers(self):
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(OSError):
            self.ask("SELECT 1", database="postgres")
            return True

    def stop(self):
        """At once, as a crash would: SIGQUIT ends all sessions without a word."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(20)
            self._process = None

    def ask(self, query, *values, database):
        """All rows of one statement."""
        import psycopg

        try:
            with psycopg.connect(self.url(database), autocommit=True, connect_timeout=5) as connection:
                found = connection.execute(query, values)
                return found.fetchall() if found.description else []
        except psycopg.OperationalError as error:
            raise ConnectionError(str(error)) from error

    def url(self, database, *, password=PASSWORD, user=OWNER):
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def fresh(self):
        """The name of a new, empty database."""
        name = f"ledger{next(self._numbers)}"
        self.ask(f"CREATE DATABASE {name}", database="postgres")
        return name


def _known(name):
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name)


@pytest.fixture(scope="session")
def driver():
    """The driver that PostgreSQL needs."""
    return pytest.importorskip("psycopg", reason="needs the extra needle-router[postgres]")


@pytest.fixture(scope="session")
def server(driver):
    """The server, made once for all tests of a worker."""
    programs = binaries()
    if programs is None:
        pytest.skip("needs PostgreSQL (the Debian package postgresql)")
    # Not below pytest's own folder, which nobody else may enter; and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        made = Server(Path(folder), programs)
        made.make()
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def database(server):
    """An empty database on a server that runs."""
    return Here(server, server.fresh())


class Here:
    """A database of the server: its place, and what stands in it."""

    def __init__(self, server, name):
        self.server, self.name, self.place = server, name, Database(server.url(name))

    def ask(self, query, *values):
        return self.server.ask(query, *values, database=self.name)


def until(condition, seconds=10.0):
    """Wait for a condition; fails when it does not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)
