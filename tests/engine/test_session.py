import json
import threading

import pytest
from tests.engine.support import LIGHTS, task, tool

from needle_router.engine.session import Refusal, Session, as_envelope, ordered_tools
from needle_router.task import Task

OTHER = tool("get_weather", city="string")
ENVELOPE = {"type": "call", "success": True, "function_calls": []}


class Recorder:
    """A library that notes what it is asked; answers are played in order, the last repeats, a Refusal is raised."""

    def __init__(self, *answers, remembers=True):
        self.remembers = remembers
        self.answers = list(answers) or [ENVELOPE]
        self.ops = []

    def load(self):
        self.ops.append("load")

    def init(self, system, tools):
        self.ops.append(f"init {json.loads(tools)[0]['name']}")

    def reset(self):
        self.ops.append("reset")

    def complete(self, text, max_new_tokens):
        self.ops.append(f"{text}/{max_new_tokens}")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def facts(reply):
    return reply.replayed_turns, reply.reinitialized


def test_an_isolated_session_loads_once_and_is_reset_before_every_further_text():
    library = Recorder()
    session = Session(library)
    replies = [session.run(task(text, max_new_tokens=9)) for text in ("one", "two")]
    assert library.ops == ["init set_lights", "one/9", "reset", "two/9"]
    assert [facts(reply) for reply in replies] == [(1, True), (1, False)]


def test_an_isolated_session_loads_again_only_when_system_or_tools_changed():
    library = Recorder()
    session = Session(library)
    assert facts(session.run(task("a"))) == (1, True)
    assert facts(session.run(task("a", tools=(OTHER,)))) == (1, True)
    assert facts(session.run(task("a", tools=(OTHER,), system="date: 2026-12-01 Tue"))) == (1, True)
    assert facts(session.run(task("a", tools=(OTHER,), system="date: 2026-12-01 Tue"))) == (1, False)


def replaying(*first):
    library = Recorder()
    session = Session(library)
    assert facts(session.run(task(*first, replay=True))) == (len(first), True)
    library.ops.clear()
    return library, session


def test_replay_feeds_everything_at_the_first_request():
    library = Recorder()
    reply = Session(library).run(task("hello", "[1]", replay=True))
    assert library.ops == ["init set_lights", "hello/256", "[1]/256"]
    assert facts(reply) == (2, True)


def test_replay_feeds_only_the_new_text_of_an_agent_loop():
    library, session = replaying("book a room")
    assert facts(session.run(task("book a room", '[{"ok":true}]', replay=True))) == (1, False)
    assert library.ops == ['[{"ok":true}]/256']


def test_replay_tells_what_the_engine_said_on_the_way():
    calls = [{"name": "book", "arguments": {}}, {"name": "pay"}, "no call"]
    library = Recorder({**ENVELOPE, "function_calls": calls}, {"function_calls": None}, ENVELOPE)
    session = Session(library)
    assert session.run(task("a", "[1]", "b", replay=True)).said == (("book", "pay"), ())
    assert session.run(task("a", "[1]", "b", "c", replay=True)).said == ()


def test_replay_loads_and_feeds_everything_when_the_tools_differ():
    library, session = replaying("book a room")
    assert facts(session.run(task("book a room", "[1]", tools=(OTHER,), replay=True))) == (2, True)
    assert library.ops == ["init get_weather", "book a room/256", "[1]/256"]


def test_replay_resets_and_feeds_everything_for_another_conversation():
    library, session = replaying("book a room")
    assert facts(session.run(task("dim the light", "[1]", replay=True))) == (2, False)
    assert library.ops == ["reset", "dim the light/256", "[1]/256"]


@pytest.mark.parametrize(
    "steps",
    [pytest.param(("a", "b"), id="the same texts again"), pytest.param(("a",), id="fewer texts than before")],
)
def test_replay_starts_over_when_there_is_nothing_new_to_feed(steps):
    library, session = replaying("a", "b")
    assert facts(session.run(task(*steps, replay=True))) == (len(steps), False)
    assert library.ops[0] == "reset"


def test_an_isolated_task_after_a_replayed_one_sees_nothing_of_it():
    library, session = replaying("a", "b")
    session.run(task("c"))
    assert library.ops == ["reset", "c/256"]


@pytest.mark.parametrize(
    "bad", [pytest.param({"success": False}, id="success false"), pytest.param({"type": "error"}, id="type error")]
)
def test_a_conversation_does_not_go_on_after_a_turn_that_failed(bad):
    library = Recorder(bad, ENVELOPE)
    session = Session(library)
    assert session.run(task("a", replay=True)).envelope == bad
    assert facts(session.run(task("a", "b", replay=True))) == (2, False)
    assert library.ops == ["init set_lights", "a/256", "reset", "a/256", "b/256"]


def test_after_garbage_the_session_is_reset_but_not_loaded_again():
    library = Recorder("no json", ENVELOPE)
    session = Session(library)
    with pytest.raises(Refusal):
        session.run(task("a"))
    session.run(task("b"))
    assert library.ops == ["init set_lights", "a/256", "reset", "b/256"]


def test_after_an_error_of_the_library_system_and_tools_are_loaded_again():
    library = Recorder(Refusal("engine-error", "boom", lost=True), ENVELOPE)
    session = Session(library)
    with pytest.raises(Refusal, match="boom"):
        session.run(task("a"))
    assert facts(session.run(task("b"))) == (1, True)


def test_a_library_without_memory_reads_the_last_text_alone():
    library = Recorder(remembers=False)
    assert facts(Session(library).run(task("first", "second", replay=True))) == (1, True)
    assert library.ops == ["init set_lights", "second/256"]


def test_a_library_without_memory_makes_no_call_after_a_tool_result():
    library = Recorder(remembers=False)
    reply = Session(library).run(task("turn it on", '[{"ok":true}]'))
    assert reply.envelope["type"] == "respond"
    assert reply.envelope["function_calls"] == []
    assert library.ops == ["init set_lights"]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(task("a\0b"), id="NUL in the text"),
        pytest.param(task("a", system="date:\0"), id="NUL in the system text"),
        pytest.param(task("\ud83d"), id="lone surrogate"),
        pytest.param(Task("", "[]", ()), id="no text"),
    ],
)
def test_what_c_strings_cannot_hold_never_reaches_the_library(bad):
    library = Recorder()
    with pytest.raises(Refusal) as refused:
        Session(library).run(bad)
    assert refused.value.reason == "bad-text"
    assert library.ops == []


@pytest.mark.parametrize("tools", ["{not json", '{"name":"a"}', "[1]", '[{"description":"nameless"}]'])
def test_malformed_tools_are_refused_because_the_library_would_take_them(tools):
    library = Recorder()
    with pytest.raises(Refusal) as refused:
        Session(library).run(Task("", tools, ("a",)))
    assert refused.value.reason == "engine-error"
    assert library.ops == []


def test_tools_reach_the_library_with_name_description_and_parameters_in_this_order():
    swapped = [{"parameters": {"b": 1, "a": 2}, "strict": True, "description": "d", "name": "n"}]
    assert ordered_tools(json.dumps(swapped)) == (
        '[{"name":"n","description":"d","parameters":{"b":1,"a":2},"strict":true}]'
    )


def test_tools_in_order_stay_as_they_are():
    text = json.dumps([LIGHTS, OTHER], separators=(",", ":"))
    assert ordered_tools(text) == text


@pytest.mark.parametrize("text", ["", "nonsense", '{"type":"call"', "[]", "3", "NaN", " " * 1000])
def test_output_that_is_no_json_object_is_garbage(text):
    with pytest.raises(Refusal) as refused:
        as_envelope(text)
    assert refused.value.reason == "engine-garbage"


def test_a_second_thread_is_kept_out_of_the_library():
    session, caught = Session(Recorder()), []
    session.load()

    def intrude():
        try:
            session.run(task("a"))
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert caught == ["a native session belongs to the thread that loaded it"]
