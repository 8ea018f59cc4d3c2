import json
import os
import threading

import pytest
from tests.engine.support import LIGHTS, call, read_log, write_script

from needle_router.engine.scripted import SILENT, ScriptedLibrary
from needle_router.engine.session import LoadFailed, Refusal

TOOLS = json.dumps([LIGHTS])


def loaded(path):
    library = ScriptedLibrary(path)
    library.load()
    library.init("date: 2026-11-30 Mon", TOOLS)
    return library


def test_envelopes_come_in_order_and_the_last_repeats(tmp_path):
    library = loaded(write_script(tmp_path, call("a"), call("b")))
    names = [library.complete("x", 9)["function_calls"][0]["name"] for _ in range(4)]
    assert names == ["a", "b", "b", "b"]


def test_a_script_without_envelopes_makes_no_call(tmp_path):
    assert loaded(write_script(tmp_path)).complete("x", 9) == SILENT


def test_the_log_has_a_line_for_every_entry_with_process_and_thread(tmp_path):
    log = tmp_path / "log"
    library = loaded(write_script(tmp_path, call("a"), log=str(log)))
    library.complete("hello", 9)
    library.reset()
    here = {"pid": os.getpid(), "thread": threading.get_ident()}
    assert read_log(log) == [
        {"op": "init", "system": "date: 2026-11-30 Mon", "tools": [LIGHTS], **here},
        {"op": "complete", "text": "hello", **here},
        {"op": "reset", **here},
    ]


def test_raise_makes_every_completion_fail(tmp_path):
    library = loaded(write_script(tmp_path, call("a"), **{"raise": "boom"}))
    for _ in range(2):
        with pytest.raises(Refusal, match="boom"):
            library.complete("x", 9)


@pytest.mark.parametrize(
    "text, message",
    [
        pytest.param("{", "is not JSON", id="no JSON"),
        pytest.param("[]", "is not an object with a list of envelopes", id="a list"),
        pytest.param('{"envelopes": {}}', "is not an object with a list of envelopes", id="envelopes are no list"),
    ],
)
def test_a_script_that_cannot_be_read_fails_the_load(tmp_path, text, message):
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(LoadFailed, match=message):
        ScriptedLibrary(str(path)).load()
