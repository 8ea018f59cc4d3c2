"""What `explain` says of a request is what the server shows of it: route, reason and policy, request by request."""

import json

import httpx
import msgspec
import pytest
from tests.servers import serving, until

from needle_policies.lots import lot
from needle_router import create_app
from needle_router.build import build, wait_until_loaded
from needle_router.cli.demo.home import HOME, MANY, TIMER
from needle_router.cli.demo.run import demo_config
from needle_router.cli.demo.upstream import MODEL, DemoUpstream
from needle_router.engine.base import EngineState
from needle_router.explaining import explained
from needle_router.features import conversation
from needle_router.turn import Message, Turn

pytestmark = pytest.mark.anyio
TEXT = "turn on the kitchen lights"
DRAWERS = [tool for tool in MANY if tool["function"]["name"].startswith("open_drawer")][:2]
PAST = [
    {"role": "user", "content": "what's the weather in Paris?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
]
EVENT = {
    "type": "json_schema",
    "json_schema": {
        "name": "set_timer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"minutes": {"type": "integer"}},
            "required": ["minutes"],
            "additionalProperties": False,
        },
    },
}


def ask(text=TEXT, **fields):
    """A request body that offers the demo's tools."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "tools": list(HOME), **fields}


def inside_the_canary(low, high):
    """A request whose conversation has a lot between the two."""
    for hour in range(24):
        for minute in range(60):
            prompt = f"time: {hour:02}:{minute:02}"
            turn = Turn(b"", MODEL, (Message("system", prompt), Message("user", TEXT)))
            if low <= lot("canary", conversation(turn)) < high:
                return ask(messages=[{"role": "system", "content": prompt}, {"role": "user", "content": TEXT}])
    raise AssertionError("no conversation has such a lot")


def policies(*tables, minimum=0.6, **options):
    return ({"kind": "guards"}, *tables, {"kind": "threshold", "minimum": minimum, **options})


def changed(**fields):
    """The demo's tools with the first one's schema marked."""
    function = HOME[0]["function"]
    return [{**HOME[0], "function": {**function, "parameters": {**function["parameters"], **fields}}}, *HOME[1:]]


PLAIN = {
    "an answer": (ask(), {}, "local confident threshold"),
    "a stream": (ask(stream=True), {}, "local confident threshold"),
    "two intents": (ask(f"{TEXT} and get the weather in Paris"), {}, "merged merged threshold"),
    "negated": (ask("don't turn on the kitchen lights"), {}, "upstream negated guards"),
    "ungrounded": (ask("turn off the basement lights"), {}, "upstream ungrounded guards"),
    "a state": (ask("are the kitchen lights on?"), {}, "upstream state-question guards"),
    "off-topic": (ask("what is the capital of France"), {}, "upstream no-call guards"),
    "no tools": (ask(tools=[]), {}, "upstream no-tools guards"),
    "too many tools": (ask(tools=list(MANY)), {}, "upstream too-many-tools guards"),
    "a tool's result": (ask(messages=PAST), {}, "upstream tool-result-turn guards"),
    "a long prompt": (ask("turn on the kitchen lights " * 400), {}, "upstream prompt-too-long guards"),
    "marked never": (ask(tools=changed(**{"x-needle-risk": "never"})), {}, "upstream tool-never guards"),
    "extraction": (
        ask("set a timer for 5 minutes", tools=[], response_format=EVENT),
        {},
        "local extracted threshold",
    ),
    "json mode": (ask(tools=[], response_format={"type": "json_object"}), {}, "upstream json-object guards"),
    "unparsed": (b'{"model": ', {}, "upstream unparsed"),
    "no object": (b"[]", {}, "upstream unparsed"),
    "mode shadow asked": (ask(), {"x-needle-mode": "shadow"}, "upstream shadow"),
    "mode off asked": (ask(), {"x-needle-mode": "off"}, "upstream mode-off"),
    "upstream asked": (ask(), {"x-needle-mode": "force-upstream"}, "upstream force-upstream"),
    "a higher score asked": (ask(), {"x-needle-min-confidence": "0.999"}, "upstream below-threshold request"),
    "a tool kept away": (ask(), {"x-needle-never": "set_lights"}, "upstream tool-never request"),
    "nonsense asked": (ask(), {"x-needle-min-confidence": "high"}, "upstream bad-override"),
    "encoded": (ask(), {"content-encoding": "zstd"}, "upstream encoded-body"),
    "the local model": (ask(model="tiny-needle"), {}, "local local-model"),
}
SERVERS = {
    "plain": ({}, PLAIN),
    "strict": (
        {"policy": policies(minimum=0.999, tools={"set_timer": "never"})},
        {
            "below the threshold": (ask(), {}, "upstream below-threshold threshold"),
            "never, by its call": (ask("set a timer for 5 minutes"), {}, "upstream tool-never threshold"),
            "never, all on offer": (ask(tools=[TIMER]), {}, "upstream tool-never threshold"),
        },
    ),
    "risk": (
        {"policy": policies({"kind": "side-effects", "never": ["open_*"], "write_minimum": 0.99})},
        {
            "never": (ask(tools=DRAWERS), {}, "upstream risk-never side-effects"),
            "too risky": (ask(), {}, "upstream below-risk side-effects"),
            "reads": (ask("what's the weather in Paris?"), {}, "local confident threshold"),
        },
    ),
    "watched": (
        {"policy": policies({"kind": "shadow", "tools": ["set_timer"]}, {"kind": "canary", "share": 0.5})},
        {
            "a tool in shadow": (
                ask("set a timer for 5 minutes", tools=[HOME[4]]),
                {},
                "upstream shadow-policy shadow",
            ),
            "by its call": (
                {**inside_the_canary(0.0, 0.5), "messages": [*inside_the_canary(0.0, 0.5)["messages"]]},
                {},
                "local confident threshold",
            ),
            "outside the canary": (inside_the_canary(0.5, 1.0), {}, "upstream canary-rest canary"),
        },
    ),
    "certified": (
        {"policy": policies(certificates="certificates.json")},
        {
            "as certified": (ask(), {}, "local confident threshold"),
            "another schema": (ask(tools=changed(title="Lights")), {}, "upstream certificate-void threshold"),
            "a tool without": (ask("set a timer for 5 minutes"), {}, "upstream uncertified threshold"),
        },
    ),
    "a sentence": (
        {"policy": policies({"kind": "replies", "templates": {"get_weather": "It is looked up."}})},
        {
            "after a tool's result": (ask(messages=PAST), {}, "local reply-template replies"),
            "not after a wish": (ask(), {}, "local confident threshold"),
        },
    ),
    "in shadow": (
        {"mode": "shadow"},
        {
            "whatever": (ask(), {}, "upstream shadow"),
            "but for what is stopped before": (ask(tools=[]), {}, "upstream no-tools guards"),
        },
    ),
    "off": ({"mode": "off"}, {"whatever": (ask(), {}, "upstream mode-off")}),
    "out of money": (
        {"policy": policies({"kind": "budget", "daily_usd": 0.0, "then": "refuse"})},
        {
            "answered here": (ask(), {}, "local confident threshold"),
            "refused": (ask("don't turn on the kitchen lights"), {}, "local budget-exceeded budget"),
            "refused unread": (b"{", {}, "local budget-exceeded budget"),
            "no way round": (ask(), {"x-needle-mode": "off"}, "local budget-exceeded budget"),
        },
    ),
}


def raw(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def certify(folder, fingerprint):
    entry = {"fingerprint": fingerprint, "per_tool": True, "tools": {"set_lights": {"threshold": 0.5}}}
    (folder / "certificates.json").write_text(json.dumps({"version": 2, "certificates": [entry]}))


async def fingerprint():
    """That of a plain request under the demo's configuration."""
    services = build(demo_config("http://127.0.0.1:9"), upstream=True)
    await services.engine.start()
    try:
        await wait_until_loaded(services.engine)
        return (await explained(services, raw(ask())))["fingerprint"]
    finally:
        await services.engine.aclose()


async def shown(http, url, body, headers):
    """What the server's headers say."""
    fields = {"content-type": "application/json", **headers}
    answer = await http.post(f"{url}/v1/chat/completions", content=raw(body), headers=fields)
    names = ("x-needle-route", "x-needle-reason", "x-needle-policy")
    said = [answer.headers[name] for name in names if name in answer.headers]
    if (
        said[0] != "upstream"
        and answer.status_code == 200
        and "text/event-stream" not in answer.headers["content-type"]
    ):
        assert [answer.json()["x_needle"][name] for name in ("route", "reason", "policy")] == [*said, ""][:3]
    return " ".join(said)


async def told(services, body, headers):
    """What `explain` says."""
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    found = await explained(services, raw(body), fields)
    return " ".join(found[name] for name in ("route", "reason", "policy") if found.get(name))


def test_there_are_more_than_twenty_requests():
    assert sum(len(cases) for _, cases in SERVERS.values()) >= 40


@pytest.mark.parametrize("server", SERVERS)
async def test_what_is_explained_is_what_happens(tmp_path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    changes, cases = SERVERS[server]
    if server == "certified":
        certify(tmp_path, await fingerprint())
    async with serving(DemoUpstream(), lifespan="off") as upstream:
        config = msgspec.structs.replace(demo_config(upstream), **changes)
        router = create_app(config)
        async with serving(router, lifespan="on") as url, httpx.AsyncClient(timeout=30) as http:
            await until(lambda: router.services.engine.health().state is not EngineState.LOADING)
            seen = {name: await shown(http, url, *case[:2]) for name, case in cases.items()}
            said = {name: await told(router.services, *case[:2]) for name, case in cases.items()}
    assert seen == {name: case[2] for name, case in cases.items()}
    assert said == seen
