"""What voids a certificate, and what does not."""

import datetime

import pytest

from needle_router.config.schema import Engine
from needle_router.engine.identity import Identity, identity, sampled
from needle_router.fingerprint import fingerprint, folded
from needle_router.translate import catalogue_of, system_text
from needle_router.turn import Tool

LIGHT = Tool("set_light", "Switch a light", {"type": "object", "properties": {"room": {"type": "string"}}})
WEATHER = Tool("get_weather", "", {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}})
PROMPT = ("You run a home.\ndate: 2026-11-30 Mon\nNever open the garage.",)


def name(tools=(LIGHT, WEATHER), prompt=PROMPT, day=30, system="facts", reach="prompt", **changes):
    facts = system_text(prompt, system, datetime.date(2026, 11, day))
    values = {"engine": "rust/tiny", "session": "isolated", **changes}
    return fingerprint(catalogue_of(tools), prompt=prompt, facts=facts, system=system, reach=reach, **values)


def changed(tool, **changes):
    return Tool(tool.name, changes.get("description", tool.description), changes.get("parameters", tool.parameters))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"day": 29}, id="the next day"),
        pytest.param({"prompt": ("You run a home.\ndate: 2027-01-01 Fri\nNever open the garage.",)}, id="another date"),
        pytest.param({"tools": (Tool("set_light", "Switch a light", dict(LIGHT.parameters)), WEATHER)}, id="a copy"),
    ],
)
def test_a_certificate_outlives(changes):
    assert name(**changes) == name()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tools": (LIGHT,)}, id="a tool less"),
        pytest.param({"tools": (WEATHER, LIGHT)}, id="another order, which the engine sees"),
        pytest.param({"tools": (changed(LIGHT, description="Switch a lamp"), WEATHER)}, id="a description"),
        pytest.param(
            {
                "tools": (
                    LIGHT,
                    changed(WEATHER, parameters={"type": "object", "properties": {"city": {"type": "string"}}}),
                )
            },
            id="a limit in a schema that the engine is not told",
        ),
        pytest.param({"prompt": ("You run a home.\ndate: 2026-11-30 Mon",)}, id="a rule less in the prompt"),
        pytest.param({"prompt": ("You run a home.\nNever open the garage.",)}, id="a fact less"),
        pytest.param({"system": "none"}, id="what the engine reads of the prompt"),
        pytest.param({"engine": "rust/other"}, id="the engine"),
        pytest.param({"session": "replay"}, id="the session mode"),
    ],
)
def test_a_certificate_is_void_after(changes):
    assert name(**changes) != name()


def test_with_the_reach_of_the_engine_only_what_it_reads_of_the_prompt_counts():
    states = [("The kitchen light is on.\nlocation: Oslo",), ("The kitchen light is off.\nlocation: Rome",)]
    assert len({name(prompt=prompt, reach="engine") for prompt in states}) == 1
    assert len({name(prompt=prompt) for prompt in states}) == 2
    assert name(prompt=("location: Oslo",), reach="engine") != name(prompt=("device: phone",), reach="engine")
    verbatim = [name(prompt=prompt, reach="engine", system="verbatim") for prompt in states]
    assert len(set(verbatim)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Today is {}.|2026-11-30|2027-01-02",
        "It is {} now.|9:15|21:40:03",
        "It is {} now.|9:15 AM|10:00 p.m.",
        "It is {} now.|Monday, 30 November 2026, 9:15|Tuesday, 1 December 2026, 10:20",
        "Now: {}|November 30, 2026|Dec. 1st, 2026",
        "Now: {};|2026-11-30T09:15:00Z|2026-12-01T10:00:30.250+01:00",
        "Now: {}|30.11.2026|1.12.2026",
        "Now: {}|11/30/26|12/1/2026",
        "Now: {}|Mon 09:15|Thurs 10:00",
        "Now: {}|1764493200|1764493201",
    ],
)
def test_a_moment_makes_no_difference(text):
    frame, one, other = text.split("|")
    assert folded(frame.format(one)) == folded(frame.format(other)) != folded(frame.format("x"))


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("Facts.\n- Location: Oslo\nB", "Facts.\nlocation:\nB"),
        ("A;battery: 80 %;B", "A;battery:;B"),
        ("colour: red", "colour: red"),
        ("user: " + "x" * 200, "user: " + "x" * 200),
    ],
)
def test_a_fact_is_folded_to_its_key(text, without):
    assert folded(text) == without


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("at most 3 calls", "at most 4 calls"),
        ("version 1.2", "version 1.3"),
        ("rooms: attic", "rooms: cellar"),
        ("Sunny", "Monica"),
        ("10.0.0.1", "10.0.0.2"),
    ],
)
def test_anything_else_makes_one(one, other):
    assert folded(one) != folded(other)


def test_a_prompt_that_is_all_one_line_of_blanks_is_folded_quickly():
    assert folded(" " * 1_000_000 + "x") == " " * 1_000_000 + "x"


def test_a_lone_surrogate_in_a_prompt_is_no_fault():
    assert len(name(prompt=("\ud800",))) == 16


def test_two_models_under_one_name_are_two_engines(tmp_path):
    seen = set()
    for weights in (b"a" * 300_000, b"a" * 150_000 + b"b" * 150_000, b"a" * 300_001):
        file = tmp_path / "tuned.cact"
        file.write_bytes(weights)
        seen.add(identity(Engine(backend="rust", model=str(file)), {}))
    assert len(seen) == 3
    assert all(one.startswith("rust/tuned.cact/") for one in seen)


def test_the_same_model_elsewhere_is_the_same_engine(tmp_path):
    names = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "tuned.cact"
        file.write_bytes(b"weights")
        names.append(identity(Engine(backend="rust", model=str(file)), {}))
    assert names[0] == names[1]


def test_a_library_named_by_a_variable_counts(tmp_path):
    library = tmp_path / "libneedle.so"
    library.write_bytes(b"engine")
    plain = identity(Engine(), {"HOME": str(tmp_path)})
    assert identity(Engine(), {"HOME": str(tmp_path), "NEEDLE2_LIB_PATH": str(library)}) == (
        f"{plain}/{sampled(library)}"
    )


def test_the_engine_is_named_anew_until_it_is_ready(tmp_path):
    model, ready = tmp_path / "late.cact", False
    name = Identity(Engine(backend="rust", model=str(model)), {}, lambda: ready)
    assert name().endswith("/none")
    model.write_bytes(b"weights")
    ready = True
    arrived = name()
    assert arrived.endswith(f"/{sampled(model)}")
    model.unlink()
    assert name() == arrived


def test_what_cannot_be_read_has_a_name_too(tmp_path):
    assert sampled(tmp_path / "missing") == "none"
    assert identity(Engine(backend="scripted", model="x"), {}) == "scripted/x"
