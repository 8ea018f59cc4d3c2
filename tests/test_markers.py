"""What must not stand in a text for the engine."""

import pytest

from needle_router.markers import control_marker, unreadable


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user",
        "< | im_end | >",
        "<tool_call>",
        "</tool_call>",
        "a <TOOLS> b",
        "<\u200btool_call>",
        "<tool\u00ad_call>",
        "\uff1ctool_call\uff1e",
        "\uff1c\uff5cim_start\uff5c\uff1e",
        "\u3008tool_result\u3009",
        "[INST] x",
        "<think>",
        "<schema>",
    ],
)
def test_control_markers_are_found_in_every_disguise(text):
    assert control_marker(text)


@pytest.mark.parametrize(
    "text", ["turn on <b>lights</b>", "a < b and c > d", "x[0]", "<toolbox>", "email <me@x.example>", ""]
)
def test_ordinary_signs_are_no_markers(text):
    assert not control_marker(text)


@pytest.mark.parametrize(("text", "bad"), [("a\0b", True), ("\ud83d", True), ("\U0001f30d", False), ("", False)])
def test_text_that_c_code_cannot_take(text, bad):
    assert unreadable(text) is bad
