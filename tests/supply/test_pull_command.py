"""`needle-router pull` with the real hub client against a hub on loopback."""

import json
import os
import re
import signal
import time

import pytest
from tests.supply.hub import FIRST, REPOS, SECOND, wheel

from needle_router.engine.pins import LOCK_NAME, sha256_of
from needle_router.models import tiny_needle_path

pytestmark = pytest.mark.native


def lock_of(home):
    return json.loads((home.root / LOCK_NAME).read_text())["files"]


def test_a_first_pull_installs_the_library_and_records_it(home, hub, names, fake_libraries):
    code, out, err = home("pull")
    (item,) = names[2]
    assert (code, out) == (
        0,
        f"needle-2: libneedle.so of {REPOS[2]} at {FIRST[:12]} fetched, its hashes are recorded from now on\n",
    ), err
    assert home.installed(item).read_bytes() == fake_libraries[2].read_bytes()
    (pin,) = lock_of(home)
    assert pin["repo"] == REPOS[2]
    assert pin["revision"] == FIRST
    assert pin["filename"] == item.filename
    assert pin["installed"] == item.installed
    assert pin["installed_sha256"] == sha256_of(fake_libraries[2])
    assert home.leftovers() == []


def test_progress_without_a_terminal_is_log_lines_not_bars(home, hub):
    _, _, err = home("pull")
    lines = err.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:]+Z info needle_router\.supply: ", line) for line in lines), err
    assert lines[-1].endswith(": 100 %")


def test_needle_3_comes_with_its_weights(home, names):
    code, out, err = home("pull", "needle-3")
    assert (code, out.split(" of ")[0]) == (0, "needle-3: libneedle.so, needle3.cact"), err
    assert all(home.installed(item).is_file() for item in names[3])
    assert len(lock_of(home)) == 2


def test_for_the_rust_backend_the_weights_come_alone(home, hub, names):
    code, out, err = home("pull", "needle-2", "--backend", "rust")
    assert (code, out.split(" at ")[0]) == (0, f"needle-2: needle2.cact of {REPOS[2]}"), err
    assert hub.downloads() == [f"/{REPOS[2]}/resolve/{FIRST}/needle2.cact"]
    (pin,) = lock_of(home)
    assert (home.root / pin["installed"]).read_bytes() == tiny_needle_path().read_bytes()
    # Both backends share the folder and the lock file.
    assert home("pull", "needle-2")[0] == 0
    assert {pin["filename"] for pin in lock_of(home)} == {"needle2.cact", names[2][0].filename}


def test_an_archive_of_one_s_own_needs_nothing_on_the_rust_backend(home, hub):
    archive = home.folder / "tuned.cact"
    archive.write_bytes((0x05E12A83).to_bytes(4, "little") + bytes(508))
    code, out, _ = home("pull", str(archive), "--backend", "rust")
    assert (code, out) == (0, f"{archive} runs on needle-rs as it is: there is nothing to fetch\n")
    assert hub.asked == []


def test_a_second_pull_asks_nobody(home, hub):
    home("pull")
    hub.asked.clear()
    code, out, _ = home("pull", HF_ENDPOINT="http://127.0.0.1:9")
    assert (code, hub.asked) == (0, [])
    assert "stand in place, with the recorded hashes" in out


def test_what_was_lost_is_fetched_again_at_the_recorded_revision(home, hub, names):
    home("pull")
    (item,) = names[2]
    home.installed(item).unlink()
    hub.put(REPOS[2], {item.filename: wheel(libneedle__so=b"\x7fELF another")}, SECOND)
    code, out, _ = home("pull")
    assert (code, out) == (
        0,
        f"needle-2: libneedle.so of {REPOS[2]} at {FIRST[:12]} fetched, with the recorded hashes\n",
    )


def test_a_connection_that_breaks_is_resumed_where_it_broke(home, hub, names):
    (item,) = names[2]
    hub.put(REPOS[2], {item.filename: wheel(libneedle__so=b"\x7fELF" + bytes(12 << 20))})
    hub.cut_at, hub.cuts = 11 << 20, 1
    code, _, err = home("pull")
    assert code == 0, err
    ranges = [asked[2] for asked in hub.asked if asked[0] == "GET" and "/resolve/" in asked[1]]
    # The client keeps whole pieces of 10 MiB.
    assert ranges == [None, f"bytes={10 << 20}-"]
    assert home.installed(item).stat().st_size == (12 << 20) + 4


def test_a_pull_killed_half_way_leaves_no_file_in_use_and_the_next_one_succeeds(home, hub, names):
    (item,) = names[2]
    data = wheel(libneedle__so=b"\x7fELF" + os.urandom(4 << 20))
    hub.put(REPOS[2], {item.filename: data})
    hub.stall_at = len(data) // 2
    process = home.start("pull")
    assert hub.stalled.wait(30)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert not home.installed(item).exists()
    assert not (home.root / LOCK_NAME).exists()
    hub.stall_at = None
    hub.go_on.set()
    code, _, err = home("pull")
    assert (code, home.installed(item).is_file(), home.leftovers()) == (0, True, []), err


def test_other_bytes_under_the_recorded_revision_are_refused_and_the_old_file_stays(home, hub, names):
    home("pull")
    (item,) = names[2]
    lock, old = (home.root / LOCK_NAME).read_bytes(), home.installed(item)
    # The installed file is damaged, and the hub's cache is gone: now only the hub can help.
    old.write_bytes(b"damaged")
    hub.put(REPOS[2], {item.filename: wheel(libneedle__so=b"\x7fELF tampered")})
    code, out, err = home("pull", HF_HOME=str(home.folder / "other"))
    assert (code, out) == (4, "")
    assert f"needle-router: {item.filename} on the hub has changed: sha256 " in err
    assert "`needle-router pull --update` records it" in err
    assert old.read_bytes() == b"damaged"
    assert ((home.root / LOCK_NAME).read_bytes(), home.leftovers()) == (lock, [])


def test_a_tampered_cache_of_the_hub_is_not_believed(home, hub, names, fake_libraries):
    home("pull")
    (item,) = names[2]
    home.installed(item).unlink()
    (blob,) = (path for path in (home.folder / "hf" / "hub").rglob("blobs/*") if path.is_file())
    blob.write_bytes(wheel(libneedle__so=b"\x7fELF tampered"))
    code, _, err = home("pull")
    assert (code, home.installed(item).read_bytes()) == (0, fake_libraries[2].read_bytes()), err


def test_a_recorded_revision_that_is_gone_is_refused(home, hub, names):
    home("pull")
    home.installed(names[2][0]).unlink()
    hub.files[REPOS[2]] = {SECOND: hub.files[REPOS[2]][FIRST]}
    hub.heads[REPOS[2]] = SECOND
    code, _, err = home("pull", HF_HOME=str(home.folder / "other"))
    assert code == 4
    assert "this revision was recorded when it was first fetched" in err


def test_update_takes_and_records_what_the_hub_has_now(home, hub, names):
    home("pull")
    (item,) = names[2]
    hub.put(REPOS[2], {item.filename: wheel(libneedle__so=b"\x7fELF newer")}, SECOND)
    code, _, err = home("pull", "--update")
    assert (code, home.installed(item).read_bytes()) == (0, b"\x7fELF newer"), err
    assert [pin["revision"] for pin in lock_of(home)] == [SECOND]


def test_two_pulls_at_once_are_one_download_and_two_successes(home, hub):
    hub.stall_at = 1000
    first = home.start("pull")
    assert hub.stalled.wait(30)
    second = home.start("pull")
    line = second.stderr.readline()
    assert line.endswith(f"another pull is at work in {home.root}; waiting for it\n")
    hub.go_on.set()
    results = [process.communicate(timeout=30) for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0], results
    assert "stand in place" in results[1][0]
    assert len(hub.downloads()) == 1


# ------------------------------------------------------------------------------------------------ a hub that will not


@pytest.mark.parametrize(
    "content, said",
    [
        pytest.param(b"<html>not found</html>", "is no wheel: ", id="a page"),
        pytest.param(wheel(libneedle__so=b"\x7fELF" + bytes(5000))[:3000], "is no wheel: ", id="half a wheel"),
        pytest.param(
            wheel(other__so=b"\x7fELF"), "holds no needle/libneedle2.so and no needle/libneedle.so", id="empty"
        ),
        pytest.param(wheel(libneedle__so=b"<html>"), "is no shared library", id="a page in a wheel"),
    ],
)
def test_what_is_no_engine_is_refused(home, hub, names, content, said):
    (item,) = names[2]
    hub.put(REPOS[2], {item.filename: content})
    code, out, err = home("pull")
    assert (code, out) == (4, "")
    assert said in err
    assert not home.installed(item).exists()
    assert not (home.root / LOCK_NAME).exists()
    assert home.leftovers() == []


def test_weights_of_another_generation_are_refused_and_nothing_is_installed(home, hub, names):
    files = hub.files[REPOS[3]][FIRST]
    files["needle3.cact"] = (0x05E12A83).to_bytes(4, "little") + bytes(508)
    code, _, err = home("pull", "needle-3")
    assert code == 4
    assert "needle3.cact is an archive of generation 2, not 3" in err
    assert not any(home.installed(item).exists() for item in names[3])


@pytest.mark.parametrize(
    "spoil, said",
    [
        pytest.param(lambda hub: hub.files.clear(), "does not show Cactus-Compute/needle2 at main", id="repository"),
        pytest.param(lambda hub: hub.files[REPOS[2]][FIRST].clear(), "has no python/cactus_needle-", id="file"),
        pytest.param(
            lambda hub: setattr(hub, "token", "secret"), "HF_TOKEN is missing or does not allow it", id="token"
        ),
        pytest.param(lambda hub: setattr(hub, "page", b"<html>"), "does not answer as a model hub does", id="page"),
    ],
)
def test_what_the_hub_does_not_give_is_named(home, hub, spoil, said):
    spoil(hub)
    code, out, err = home("pull")
    assert (code, out) == (4, "")
    assert said in err
    assert "Traceback" not in err


def test_the_token_goes_to_the_hub_and_into_no_line(home, hub):
    hub.token = "hf-canary"
    code, out, err = home("pull", HF_TOKEN="hf-canary")
    assert code == 0, err
    assert "canary" not in out + err
    assert {asked[3] for asked in hub.asked} == {"Bearer hf-canary"}


def test_a_hub_that_cannot_be_reached_is_said_at_once(home):
    started = time.monotonic()
    code, out, err = home("pull", HF_ENDPOINT="http://127.0.0.1:9")
    # Left to itself the client tries for 23 s.
    assert time.monotonic() - started < 15
    assert (code, out) == (4, "")
    (line,) = err.splitlines()
    assert line.startswith(
        "needle-router: Cactus-Compute/needle2 at main cannot be had from http://127.0.0.1:9: Connect"
    )


# ---------------------------------------------------------------------------------------------------------- offline


def test_offline_without_a_cache_ends_with_4_and_says_why(home, hub):
    code, _, err = home("pull", HF_HUB_OFFLINE="1")
    assert (code, hub.asked) == (4, [])
    assert "is not in the cache of huggingface_hub, and HF_HUB_OFFLINE forbids asking the hub" in err


def test_offline_the_cache_of_the_hub_is_enough(home, hub, names):
    home("pull")
    home.installed(names[2][0]).unlink()
    hub.asked.clear()
    code, _, err = home("pull", HF_HUB_OFFLINE="1")
    assert (code, hub.asked, home.installed(names[2][0]).is_file()) == (0, [], True), err


# ------------------------------------------------------------------------------------------------------------- names


def test_tiny_needs_nothing(home, hub):
    code, out, _ = home("pull", "tiny")
    assert (code, out, hub.asked) == (0, "tiny comes with the package: there is nothing to fetch\n", [])


def test_a_tuned_archive_stands_for_the_engine_of_its_generation(home, names):
    archive = home.folder / "tuned.cact"
    archive.write_bytes((0x05E12A83).to_bytes(4, "little") + bytes(508))
    code, _, err = home("pull", str(archive))
    assert (code, home.installed(names[2][0]).is_file()) == (0, True), err


def test_an_unknown_model_is_a_wrong_use(home):
    code, _, err = home("pull", "needle-9")
    assert (code, err) == (
        2,
        "needle-router: needle-9 is not on the hub and no .cact file; needle-2 and needle-3 can be fetched\n",
    )


def test_a_library_that_the_environment_names_is_told_to_win(home, fake_libraries):
    code, _, err = home("pull", NEEDLE2_LIB_PATH=str(fake_libraries[2]))
    assert code == 0
    assert "NEEDLE2_LIB_PATH is set: the router loads the library that it names" in err
