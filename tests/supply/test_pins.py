"""The lock file: written whole, read strictly, checked before anything is loaded."""

import hashlib
import json

import pytest

from needle_router.engine.pins import LOCK_NAME, Pin, check_pins, read_pins, sha256_of, write_pins
from needle_router.engine.session import LoadFailed

DATA = b"\x7fELF engine"
HASH = hashlib.sha256(DATA).hexdigest()
PIN = Pin("owner/repo", "1" * 40, "python/a.whl", "2" * 64, "v2/2.0.4/libneedle.so", HASH)


def test_what_is_written_is_read_and_nothing_else_is_left(tmp_path):
    write_pins(tmp_path, [PIN])
    assert read_pins(tmp_path) == (PIN,)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]
    assert json.loads((tmp_path / LOCK_NAME).read_text()) == {
        "version": 1,
        "files": [
            {
                "repo": "owner/repo",
                "revision": "1" * 40,
                "filename": "python/a.whl",
                "sha256": "2" * 64,
                "installed": "v2/2.0.4/libneedle.so",
                "installed_sha256": HASH,
            }
        ],
    }


def test_no_lock_file_means_no_pins(tmp_path):
    assert read_pins(tmp_path) == ()


@pytest.mark.parametrize(
    "text, said",
    [
        pytest.param("", "cannot be read", id="empty"),
        pytest.param('{"version": 1, "files": [{"repo": "x"}]}', "cannot be read", id="a pin without a hash"),
        pytest.param('{"version": 1, "filse": []}', "cannot be read", id="an unknown key"),
        pytest.param('{"version": 2, "files": []}', "has version 2; this router reads 1", id="of another version"),
    ],
)
def test_a_lock_file_that_cannot_be_understood_loads_nothing(tmp_path, text, said):
    (tmp_path / LOCK_NAME).write_text(text)
    with pytest.raises(LoadFailed, match=said):
        check_pins([tmp_path / "v2/2.0.4/libneedle.so"], tmp_path)


def test_recorded_bytes_pass_and_one_other_byte_does_not(tmp_path):
    write_pins(tmp_path, [PIN])
    library = tmp_path / PIN.installed
    library.parent.mkdir(parents=True)
    library.write_bytes(DATA)
    check_pins([library], tmp_path)
    library.write_bytes(DATA[:-1] + b"!")
    with pytest.raises(
        LoadFailed, match=f"is not the file that was fetched: sha256 {sha256_of(library)}, recorded {HASH}"
    ):
        check_pins([library], tmp_path)


def test_a_file_that_is_not_recorded_is_not_checked(tmp_path):
    write_pins(tmp_path, [PIN])
    own = tmp_path / "own.so"
    own.write_bytes(b"anything")
    check_pins([own], tmp_path)


def test_a_recorded_file_that_cannot_be_read_is_a_failed_load(tmp_path):
    write_pins(tmp_path, [PIN])
    with pytest.raises(LoadFailed, match="cannot be read: No such file or directory"):
        check_pins([tmp_path / PIN.installed], tmp_path)
