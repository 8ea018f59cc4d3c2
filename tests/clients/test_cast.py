"""The table of played clients says what the lock files pin; the plays themselves run with `make test-clients`."""

import re

import pytest
from tests.clients.cast import CAST, HERE
from tests.clients.run import BEGIN, END, PAGE, table

EVERYTHING_WELL = {f"{client.title}/{scene.name}": [] for client in CAST for scene in client.scenes}
LOCKS = sorted((HERE / "requirements").glob("*.txt"))


def test_the_page_holds_the_clients_and_versions_that_are_pinned_and_all_of_them_play():
    written = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written.strip() == table(EVERYTHING_WELL)


def test_a_scene_with_a_fault_is_shown_as_failed():
    lines = table({**EVERYTHING_WELL, "litellm/stream": ["words: None"]}).splitlines()
    assert [line.split(" | ")[3:6] for line in lines if line.startswith("| litellm")] == [["ok", "failed", "ok"]]


@pytest.mark.parametrize("client", CAST, ids=lambda client: client.title)
def test_the_play_of_each_client_exists(client):
    assert (HERE / ("node" if client.is_node else "python") / client.play).is_file()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_package_is_pinned_by_hash(lock):
    pins = [line for line in lock.read_text("utf-8").splitlines() if not line.startswith(" ")]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"\S+==\S+( ; .+)? \\", line)] == []


def test_the_compromised_release_of_litellm_is_in_no_lock_file():
    assert [lock.name for lock in LOCKS if "litellm==1.107.0" in lock.read_text("utf-8")] == []
