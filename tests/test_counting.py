"""What an upstream would have read, estimated for calls that nobody waited for."""

import json

import pytest
from tests.router.support import LIGHT, config_for

from needle_router.build import build
from needle_router.counting import MAX_COUNTED_CHARS, whole_prompt
from needle_router.surfaces.chat import parse
from needle_router.turn import Usage

ENGINE = {"envelopes": []}


def prompt(tmp_path, *messages, words=""):
    services = build(config_for(tmp_path, ENGINE), upstream=True)
    turn = parse(json.dumps({"model": "m", "messages": messages, "tools": [LIGHT]}).encode())
    prepared = services.pipeline.prepare(turn)
    return whole_prompt(services.pipeline, prepared, words), len(prepared.task.tools)


def test_all_messages_the_tools_and_the_calls_of_the_history_are_counted(tmp_path):
    call = {"id": "call_1", "type": "function", "function": {"name": "set_light", "arguments": '{"room":"hall"}'}}
    found, tools = prompt(
        tmp_path,
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "lights on"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    )
    # Three bytes a token; five line ends between the tools, four messages and the arguments.
    chars = tools + len("Be brief.") + len("lights on") + len("done") + len('{"room":"hall"}') + 5
    assert found == Usage(-(-chars // 3), 0, estimated=True)


def test_words_are_the_answer(tmp_path):
    found, _ = prompt(tmp_path, {"role": "user", "content": "x"}, words="The light is on.")
    assert found.completion_tokens == 6


@pytest.mark.parametrize("more", [0, 1])
def test_a_prompt_beyond_the_limit_is_estimated_by_its_length(tmp_path, more):
    _, tools = prompt(tmp_path, {"role": "user", "content": ""})
    text = "é" * (MAX_COUNTED_CHARS - tools - 1 + more)
    found, _ = prompt(tmp_path, {"role": "user", "content": text})
    # Two bytes a letter count up to the limit; beyond it letters do.
    exact = -(-(tools + 1 + 2 * len(text)) // 3)
    assert found.prompt_tokens == (exact if more == 0 else (MAX_COUNTED_CHARS + 1) // 3)
