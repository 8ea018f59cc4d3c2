"""Prompts are counted as the engine reads them, and never promised more room than the model's window has."""

import json
import struct

import needle_rs
import pytest

from needle_router.build import build, model_file, prompt_room
from needle_router.cact import BadArchive, read_archive
from needle_router.config.schema import Config, Engine
from needle_router.models import tiny_needle_path
from needle_router.tokens import EstimateCounter, counter_for, window_of

LIGHT = json.dumps(
    [
        {
            "name": "set_light",
            "description": "Switch the light of a room",
            "parameters": {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]},
        }
    ],
    separators=(",", ":"),
)


@pytest.fixture(scope="module")
def engine():
    return needle_rs.V2Engine.load(str(tiny_needle_path()))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("turn on the kitchen light", id="plain"),
        pytest.param("", id="nothing"),
        pytest.param("  two  blanks \n", id="blanks"),
        pytest.param("東京 Zürich 🙂", id="bytes"),
        pytest.param("ＦＵＬＬ width ½", id="nothing is normalised"),
    ],
)
@pytest.mark.parametrize("tools", [pytest.param("[]", id="no tools"), pytest.param(LIGHT, id="a tool")])
@pytest.mark.parametrize("system", [pytest.param("", id="no facts"), pytest.param("date: 2026-11-30 Mon", id="facts")])
def test_a_prompt_has_as_many_tokens_as_the_engine_reads(engine, system, tools, text):
    read = engine.generate(text, tools, max_new_tokens=1, constrain=True, system=system or None)["prompt_tokens"]
    assert counter_for(tiny_needle_path()).prompt(system, tools, (text,)) == read


def test_facts_that_the_backend_leaves_out_are_not_counted():
    counter = counter_for(tiny_needle_path(), reads_system=False)
    assert counter.prompt("date: 2026-11-30 Mon", LIGHT, ("hi",)) == counter.prompt("", LIGHT, ("hi",))


def test_a_further_step_costs_its_text_and_its_turn():
    counter = counter_for(tiny_needle_path())
    one, two = counter.prompt("", LIGHT, ("hi",)), counter.prompt("", LIGHT, ("hi", "hi"))
    turn = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert two - one == counter.count(turn) - 1  # the dummy blank stands at the very beginning only


def test_what_the_engine_writes_is_counted_exactly(engine):
    output = engine.generate("set the room to kitchen", LIGHT, max_new_tokens=64, constrain=True)
    assert output["stopped_naturally"]
    assert counter_for(tiny_needle_path()).count(output["text"]) == len(output["token_ids"])


def test_the_estimate_is_not_below_the_engines_count(engine):
    for text in ("turn on the kitchen light", "hi"):
        read = engine.generate(text, LIGHT, max_new_tokens=1, constrain=True)["prompt_tokens"]
        assert EstimateCounter().prompt("", LIGHT, (text,)) >= read


@pytest.mark.parametrize(
    ("tag", "word", "generation"),
    [pytest.param(0x05E12A83, 11, 2, id="generation 2"), pytest.param(0x05E12A84, 13, 3, id="generation 3")],
)
def test_the_window_is_read_from_the_header(tmp_path, tag, word, generation):
    header = [0] * 60
    header[0], header[word] = tag, 8192
    path = tmp_path / "own.cact"
    path.write_bytes(struct.pack("<60I", *header))
    archive = read_archive(path)
    assert (archive.generation, archive.window, archive.vocabulary) == (generation, 8192, None)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0" * 400, id="another tag"),
        pytest.param(struct.pack("<3I", 0x05E12A83, 2**31, 0), id="too many tensors"),
        pytest.param(struct.pack("<3I", 0x05E12A83, 1, 2**31), id="too large a codebook"),
        pytest.param(struct.pack("<4I", 0x05E12A84, 1, 0, 0), id="cut short"),
    ],
)
def test_a_damaged_archive_says_so(tmp_path, data):
    path = tmp_path / "own.cact"
    path.write_bytes(data)
    with pytest.raises(BadArchive):
        read_archive(path)
    assert window_of(path) is None


def config(**engine):
    return Config(engine=Engine(**engine))


@pytest.mark.parametrize(
    ("engine", "limit"),
    [
        pytest.param({"backend": "rust", "model": "tiny"}, 1024 - 256 - 1, id="the window of the tiny model"),
        pytest.param({"backend": "rust", "model": "tiny", "max_new_tokens": 64}, 1024 - 64 - 1, id="a short answer"),
        pytest.param({"backend": "rust", "model": "tiny", "max_new_tokens": 2000}, 1, id="an answer beyond the window"),
        pytest.param({"backend": "scripted", "model": "needle-2"}, 1024, id="no archive, so the guards' own limit"),
    ],
)
def test_no_prompt_may_be_longer_than_the_window_leaves_room_for(tmp_path, engine, limit):
    services = build(config(**engine), upstream=True, environ={"HOME": str(tmp_path)})
    guards = services.pipeline.policies.policies[0]
    assert guards.max_prompt_tokens == services.alone.max_prompt_tokens == limit


def test_a_smaller_limit_of_the_guards_stays(tmp_path):
    narrow = Config(engine=Engine(backend="rust", model="tiny"), policy=({"kind": "guards", "max_prompt_tokens": 100},))
    services = build(narrow, upstream=True, environ={"HOME": str(tmp_path)})
    assert services.alone.max_prompt_tokens == 100


def test_a_downloaded_archive_counts_whatever_backend_runs_it(tmp_path):
    settings = config(backend="native", model="needle-2")
    assert model_file(settings, {"HOME": str(tmp_path)}) is None
    cached = tmp_path / ".cache/cactus-needle/v2/2.0.0/needle2.cact"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(tiny_needle_path().read_bytes())
    found = model_file(settings, {"HOME": str(tmp_path)})
    assert found == cached
    assert prompt_room(settings, found) == 1024 - 256 - 1
    assert build(settings, upstream=True, environ={"HOME": str(tmp_path)}).tokens.exact
