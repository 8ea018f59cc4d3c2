"""Where records are kept, and that no password is ever seen on the way there."""

import json
import os
import subprocess
import sys

import httpx
import pytest
from tests.ledger.conftest import until
from tests.router.support import KITCHEN, ask, envelope, running
from tests.servers import free_port

from needle_router.config.checks import check
from needle_router.config.schema import Config
from needle_router.config.schema import Ledger as Settings
from needle_router.config.show import toml_lines
from needle_router.ledger import Database, place_of
from needle_router.ledger.place import shown

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("postgresql://u:hunter2@db.example:5433/ledger", "postgresql://db.example:5433/ledger"),
        ("postgres://u:hunter2@db.example/ledger?sslmode=require", "postgresql://db.example/ledger"),
        ("postgresql://db.example/ledger?password=hunter2", "postgresql://db.example/ledger"),
        ("postgresql://u:hunter2@one:1,two:2/ledger", "postgresql://one:1,two:2/ledger"),
        ("POSTGRESQL://u:hunter2@[::1]:5432/ledger", "postgresql://[::1]:5432/ledger"),
        ("postgresql:///ledger?host=/run/postgresql&password=hunter2", "postgresql:///ledger"),
        ("postgresql://u:a/hunter2@db.example/ledger", "postgresql://(not shown)"),
        ("postgresql://u:a?hunter2@db.example/ledger", "postgresql://(not shown)"),
        ("postgresql://u:a#hunter2@db.example/ledger", "postgresql://(not shown)"),
        ("postgresql://u:hunter2@[db.example/ledger", "postgresql://(not shown)"),
    ],
)
def test_a_url_is_shown_without_what_may_be_a_password(url, seen):
    place = place_of(url)
    assert (str(place), shown(url)) == (seen, seen)
    assert SECRET not in repr(place) + f"{place}"


def test_everything_else_is_the_path_of_a_file(tmp_path):
    assert str(place_of("x/decisions.db")) == "x/decisions.db"
    assert str(place_of("~/d.db")) == os.path.expanduser("~/d.db")
    assert shown("/var/lib/d.db") == "/var/lib/d.db"


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("path", "problems"),
    [
        ("postgresql://u:hunter2@db.example/ledger", []),
        (
            "mysql://u:hunter2@db.example/ledger",
            ["mysql:// is not known; give the path of a file or a postgresql:// URL"],
        ),
        ("postgresql://u:hunter2@db.example/l?sslmod=x", ["is no connection URL that libpq understands"]),
        ("postgresql://u:hunter2@[db.example/l", ["is no connection URL that libpq understands"]),
        ("some/where.db", []),
        ("off", []),
    ],
)
def test_a_place_that_cannot_be_used_is_a_problem_without_its_password(path, problems):
    config = Config(mode="off", engine=Config().engine, ledger=Settings(path=path))
    found = [line for line in check(config) if line.startswith("ledger")]
    assert found == [f"ledger.path: {line}" for line in problems]
    assert SECRET not in "".join((*found, *toml_lines(config)))


def run(*arguments, before="", **variables):
    """The command line in a process of its own; `before` is run first."""
    code = f"import sys\n{before}\nfrom needle_router.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_a_missing_driver_is_a_configuration_error_that_says_what_to_install():
    # What the interpreter does where a package is not installed.
    code, _, err = run(
        "config", "check", "--mode", "off", "--ledger", f"postgresql://u:{SECRET}@127.0.0.1/d",
        before="sys.modules['psycopg'] = None",
    )  # fmt: skip
    assert code == 2
    assert "ledger.path: a PostgreSQL ledger needs its driver: pip install 'needle-router[postgres]'" in err
    assert SECRET not in err


@pytest.mark.usefixtures("driver")
def test_the_commands_that_show_a_configuration_show_no_password():
    url = f"postgresql://u:{SECRET}@127.0.0.1:{free_port()}/d"
    code, out, err = run("config", "show", "--effective", NEEDLE_ROUTER_LEDGER_PATH=url)
    assert code == 0
    assert f'path = "{shown(url)}"  # env NEEDLE_ROUTER_LEDGER_PATH' in out
    code, checked, told = run("check", "--json", "--mode", "off", "--port", "0", NEEDLE_ROUTER_LEDGER_PATH=url)
    row = next(row for row in json.loads(checked)["checks"] if row["name"] == "ledger")
    assert (code, row["state"]) == (1, "failed")
    assert row["text"].startswith(f"{shown(url)} cannot be used: connection failed")
    assert SECRET not in out + err + checked + told


@pytest.mark.anyio
@pytest.mark.usefixtures("driver")
async def test_a_router_whose_database_is_away_answers_as_ever_and_says_no_password(tmp_path, caplog):
    url = f"postgresql://u:{SECRET}@127.0.0.1:{free_port()}/d"
    async with (
        running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, ledger={"path": url}) as router,
        httpx.AsyncClient(base_url=router.url) as http,
    ):
        answers = [await http.post("/v1/chat/completions", json=ask()) for _ in range(5)]
        assert [answer.headers["x-needle-route"] for answer in answers] == ["local"] * 5
        ledger = router.router.services.ledger
        until(lambda: ledger.state == "degraded")
        pages = {page: (await http.get(page)).text for page in ("/readyz", "/-/status.json", "/metrics")}
    assert json.loads(pages["/readyz"])["ledger"] == {
        "state": "degraded",
        "dropped": 0,
        "detail": "there is no connection to the database, the log says why",
    }
    assert ledger.dropped == 5
    assert SECRET not in "".join((*pages.values(), caplog.text, repr(Database(url))))
