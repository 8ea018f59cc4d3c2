"""Sessions and the cache as a client sees them: what was fed, what was loaded, told by `x_needle` over HTTP."""

import json

import httpx
import pytest
from tests.router.support import KITCHEN, LIGHT, TEXT, WEATHER, CannedUpstream, alone, ask, envelope, running

from needle_router.ledger import read_ledger

pytestmark = pytest.mark.anyio
BEDROOM = {"name": "set_light", "arguments": {"room": "bedroom", "on": True}}
BEDROOM_TEXT = "turn on the bedroom light"
OURS = "call_ndl" + "x" * 21
REPLAY = {"session": "replay"}
#: What an engine says after a tool result; replayed in passing, never answered with.
BETWEEN = envelope(confidence=0.5)


def called(identifier=OURS, content=None):
    function = {"name": "set_light", "arguments": json.dumps(KITCHEN["arguments"])}
    calls = [{"id": identifier, "type": "function", "function": function}]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def user(text):
    return {"role": "user", "content": text}


def result(text="done", identifier=OURS):
    return {"role": "tool", "tool_call_id": identifier, "content": text}


def body(*messages, tools=(LIGHT, WEATHER), **fields):
    return {"model": "big", "messages": list(messages), "tools": list(tools), **fields}


LOOP = (user(TEXT), called(), result())


async def told(router, *bodies):
    """(replayed_turns, reinitialized) of each answer."""
    found = []
    async with httpx.AsyncClient(timeout=20) as http:
        for sent in bodies:
            answer = (await http.post(f"{router.url}/v1/chat/completions", json=sent)).json()
            found.append((answer["x_needle"]["replayed_turns"], answer["x_needle"]["reinitialized"]))
    return found


#: What is fed in each of the four situations: all of it, or with replay, in the second, only what is new.
FOUR_ALONE = {
    "replay": [(1, True), (1, False), (2, True), (1, False)],
    "isolated": [(1, True), (2, False), (2, True), (1, False)],
}
FOUR_ROUTED = {
    "replay": [(1, True), (2, False), (3, True), (1, False)],
    "isolated": [(1, True), (1, False), (1, True), (1, False)],
}


@pytest.mark.parametrize("session", ["replay", "isolated"])
async def test_the_four_situations_of_needle_alone(tmp_path, session):
    async with alone(tmp_path, {"envelopes": [envelope(KITCHEN)]}, engine={"session": session}) as router:
        first = body(user(TEXT))
        loop = body(*LOOP)
        other_tools = body(*LOOP, tools=(LIGHT,))
        unrelated = body(user("is it raining in Lagos"), tools=(LIGHT,))
        assert await told(router, first, loop, other_tools, unrelated) == FOUR_ALONE[session]
    noted = [record.reinitialized for record in read_ledger(tmp_path / "decisions.db")]
    assert noted == [loaded for _, loaded in FOUR_ALONE[session]]


@pytest.mark.parametrize("session", ["replay", "isolated"])
async def test_the_four_situations_in_front_of_an_upstream(tmp_path, session):
    between = [BETWEEN] if session == "replay" else []
    script = {"envelopes": [envelope(KITCHEN), *between, envelope(BEDROOM)]}
    async with running(tmp_path, script, engine={"session": session}) as router:
        first = body(user(TEXT))
        goes_on = body(*LOOP, user(BEDROOM_TEXT))
        other_tools = body(*LOOP, user(BEDROOM_TEXT), tools=(LIGHT,))
        unrelated = body(user(BEDROOM_TEXT), tools=(LIGHT,))
        assert await told(router, first, goes_on, other_tools, unrelated) == FOUR_ROUTED[session]
        assert router.upstream.bodies == []


async def test_results_in_a_row_are_fed_as_one_array(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope(KITCHEN)]}, engine=REPLAY) as router:
        await told(router, body(user(TEXT), called(), result("21 degrees"), result('{"ok": true}')))
        fed = router.fed()
    assert fed[0] == TEXT
    assert json.loads(fed[1]) == ["21 degrees", {"ok": True}]
    assert len(fed) == 2


@pytest.mark.parametrize(
    "spoken",
    [
        pytest.param([called("call_up0"), result("done", "call_up0")], id="a call of the upstream"),
        pytest.param([called(content="Let me see."), result()], id="words beside our call"),
        pytest.param([{"role": "assistant", "content": "Hello!"}], id="words alone"),
    ],
)
async def test_a_history_in_which_the_upstream_spoke_is_not_replayed(tmp_path, spoken):
    async with running(tmp_path, {"envelopes": [envelope(BEDROOM)]}, engine=REPLAY) as router:
        assert await told(router, body(user(TEXT), *spoken, user(BEDROOM_TEXT))) == [(1, True)]
        assert router.fed() == [BEDROOM_TEXT]


@pytest.mark.parametrize(
    "then, where",
    [
        pytest.param(KITCHEN, ("local", "confident"), id="the same call"),
        pytest.param(
            {"name": "get_weather", "arguments": {"city": "Oslo"}}, ("upstream", "replay-differs"), id="another call"
        ),
    ],
)
async def test_a_replay_in_which_the_engine_says_something_else_is_not_believed(tmp_path, then, where):
    script = {"envelopes": [envelope(then), BETWEEN, envelope(BEDROOM)]}
    async with running(tmp_path, script, engine=REPLAY) as router, httpx.AsyncClient(timeout=20) as http:
        sent = body(*LOOP, user(BEDROOM_TEXT))
        answer = await http.post(f"{router.url}/v1/chat/completions", json=sent)
        assert (answer.headers["x-needle-route"], answer.headers["x-needle-reason"]) == where
        assert len(router.fed()) == 3


async def test_an_isolated_session_reads_its_own_request_alone(tmp_path):
    script = {"envelopes": [envelope(KITCHEN), envelope(BEDROOM)]}
    async with running(tmp_path, script) as router:
        await told(router, body(user(TEXT)), body(*LOOP, user(BEDROOM_TEXT)))
        assert router.fed() == [TEXT, BEDROOM_TEXT]
        entries = [json.loads(line)["op"] for line in (tmp_path / "engine.log").read_text().splitlines()]
        assert entries[-3:] == ["complete", "reset", "complete"]


@pytest.mark.parametrize(
    "limit, route, reason", [(3, "local", "confident"), (2, "upstream", "too-many-steps")], ids=["at it", "past it"]
)
async def test_the_limit_on_replayed_steps(tmp_path, limit, route, reason):
    engine = {"session": "replay", "max_replay_steps": limit}
    script = {"envelopes": [envelope(KITCHEN), BETWEEN, envelope(BEDROOM)]}
    async with running(tmp_path, script, engine=engine) as router, httpx.AsyncClient(timeout=20) as http:
        sent = body(*LOOP, user(BEDROOM_TEXT))
        answer = await http.post(f"{router.url}/v1/chat/completions", json=sent)
        assert (answer.headers["x-needle-route"], answer.headers["x-needle-reason"]) == (route, reason)
        assert len(router.fed()) == (3 if route == "local" else 0)


async def test_an_isolated_session_knows_no_limit_on_steps(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(BEDROOM)]}, engine={"max_replay_steps": 1}) as router:
        assert await told(router, body(*LOOP, user(BEDROOM_TEXT))) == [(1, True)]


# ---------------------------------------------------------------------------------------------------- the cache


def narrowed(tool, **keywords):
    """A tool whose parameters have keywords that the engine never reads."""
    function = tool["function"]
    return {**tool, "function": {**function, "parameters": {**function["parameters"], **keywords}}}


INSTRUCTED = [{"role": "system", "content": "You are a butler."}, user(TEXT)]
PINNED = {"type": "function", "function": {"name": "set_light"}}
ALLOWED = {"mode": "auto", "tools": [PINNED, {"type": "function", "function": {"name": "get_weather"}}]}


@pytest.mark.parametrize(
    "second, cached",
    [
        pytest.param(ask(), True, id="the same"),
        pytest.param(ask(tool_choice="auto"), True, id="the default choice by name"),
        pytest.param(ask(tool_choice="required"), False, id="required instead of auto"),
        pytest.param(ask(tool_choice={"type": "allowed_tools", "allowed_tools": ALLOWED}), False, id="all allowed"),
        pytest.param(ask(messages=INSTRUCTED), False, id="instructions"),
        pytest.param(
            ask(tools=[narrowed(LIGHT, additionalProperties=False), WEATHER]), False, id="a schema of the same shape"
        ),
        pytest.param(ask(temperature=0.2, user="someone"), True, id="what the engine never reads"),
        pytest.param(ask("turn on the kitchen light!"), False, id="another text"),
        pytest.param(ask(tool_choice=PINNED), False, id="a pinned tool"),
        pytest.param(ask(tools=[WEATHER, LIGHT]), False, id="tools in another order"),
        pytest.param(ask(messages=[{"role": "system", "content": "locale: de-DE"}, user(TEXT)]), False, id="a fact"),
    ],
)
async def test_only_an_equal_question_is_answered_from_the_cache(tmp_path, second, cached):
    script = {"envelopes": [envelope(KITCHEN)]}
    async with running(tmp_path, script, engine={"cache_entries": 8}) as router, httpx.AsyncClient(timeout=20) as http:
        answers = [(await http.post(f"{router.url}/v1/chat/completions", json=sent)).json() for sent in (ask(), second)]
        assert [answer["x_needle"]["cached"] for answer in answers] == [False, cached]
        assert len(router.fed()) == (1 if cached else 2)
        first, other = (answer["choices"][0]["message"]["tool_calls"][0] for answer in answers)
        assert first["function"] == other["function"]
        # The decision is kept, not the answer: each client gets ids of its own.
        assert first["id"] != other["id"]
        assert answers[0]["id"] != answers[1]["id"]


@pytest.mark.parametrize(
    "one, other",
    [
        pytest.param("auto", "required", id="auto and required"),
        pytest.param("required", PINNED, id="required and named"),
        pytest.param(PINNED, "auto", id="named and auto"),
    ],
)
async def test_each_choice_keeps_an_answer_of_its_own(tmp_path, one, other):
    script = {"envelopes": [envelope(KITCHEN)]}
    async with running(tmp_path, script, engine={"cache_entries": 8}) as router, httpx.AsyncClient(timeout=20) as http:
        cached = []
        for choice in (one, other, one, other):
            answer = await http.post(f"{router.url}/v1/chat/completions", json=ask(tool_choice=choice))
            cached.append(answer.json()["x_needle"]["cached"])
        assert cached == [False, False, True, True]


async def test_another_schema_is_another_question(tmp_path):
    wider = json.loads(json.dumps(LIGHT))
    wider["function"]["parameters"]["properties"]["level"] = {"type": "integer"}
    script = {"envelopes": [envelope(KITCHEN)]}
    async with running(tmp_path, script, engine={"cache_entries": 8}) as router:
        assert await told(router, ask(), ask(tools=[wider, WEATHER])) == [(1, True), (1, True)]
        assert len(router.fed()) == 2


async def test_a_replayed_conversation_is_never_answered_from_the_cache(tmp_path):
    engine = {"session": "replay", "cache_entries": 8}
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}, engine=engine) as router:
        assert await told(router, ask(), ask()) == [(1, True), (1, False)]
        assert router.fed() == [TEXT, TEXT]


async def test_the_cache_forgets_what_was_used_longest_ago(tmp_path):
    script = {"envelopes": [envelope(KITCHEN)]}
    texts = [TEXT, "turn on the kitchen light now", "turn on the kitchen light please"]
    async with running(tmp_path, script, engine={"cache_entries": 2}) as router:
        await told(router, *(ask(text) for text in (*texts, texts[1], texts[0])))
        assert router.fed() == [*texts, texts[0]]


async def test_an_error_of_the_engine_is_not_kept(tmp_path):
    failed = {"type": "error", "success": False, "error": "no", "error_code": "x"}
    upstream = CannedUpstream()
    script = {"envelopes": [failed, envelope(KITCHEN)]}
    async with running(tmp_path, script, upstream=upstream, engine={"cache_entries": 2}) as router:
        async with httpx.AsyncClient(timeout=20) as http:
            routes = [
                (await http.post(f"{router.url}/v1/chat/completions", json=ask())).headers["x-needle-route"]
                for _ in range(2)
            ]
        assert routes == ["upstream", "local"]
