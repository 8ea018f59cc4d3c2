"""The demo, as a process, and its canned upstream through the official client."""

import os
import re
import signal

import openai
import pytest

from needle_router.cli.demo.home import HOME, spoken_calls
from needle_router.cli.demo.run import demo_config, serving
from needle_router.cli.demo.turns import TURNS
from needle_router.cli.demo.upstream import MODEL, DemoUpstream
from needle_router.cli.listen import listen, url_of

EXPECTED = {
    "a single call": ("local", "confident"),
    "another tool": ("local", "confident"),
    "a question that a tool answers": ("local", "confident"),
    "a call, streamed": ("local", "confident"),
    "a call required": ("local", "confident"),
    "two intents": ("merged", "merged"),
    "a call and words, streamed": ("merged", "merged"),
    "a negation": ("upstream", "negated"),
    "a question about a state": ("upstream", "state-question"),
    "off-topic": ("upstream", "no-call"),
    "an unseen word": ("upstream", "ungrounded"),
    "too many tools": ("upstream", "too-many-tools"),
    "a tool's result": ("upstream", "tool-result-turn"),
    "an image": ("upstream", "media-input"),
    "json_object": ("upstream", "json-object"),
    "structured extraction": ("local", "extracted"),
    "no tools at all": ("upstream", "no-tools"),
}


def test_the_demo_shows_every_turn_its_savings_and_what_it_is_not(cli):
    code, out, err = cli("demo")
    assert (code, err) == (0, "")
    rows = [re.split(r" {2,}", line) for line in out.splitlines()]
    shown = {row[0]: (row[2], row[3]) for row in rows if len(row) == 7 and row[0] != "turn"}
    assert shown == EXPECTED
    assert out.count("not Needle's quality") == 1
    assert "17 turns: 6 local, 2 merged, 9 upstream" in out
    tokens, money = re.search(r"^saved: (\d+) tokens, ([\d.]+) USD", out, re.M).groups()
    assert int(tokens) > 0
    assert float(money) > 0


def test_without_the_official_client_it_says_how_to_get_it(cli, tmp_path):
    # A finder that knows no `openai`, as on a machine where the extra is not installed.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, importlib.abc\n"
        "class Missing(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'openai':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    search = f"{tmp_path}{os.pathsep}{cli.environment['PYTHONPATH']}"
    code, out, err = cli("demo", PYTHONPATH=search)
    assert (code, out) == (1, "")
    assert err == "needle-router: the demo uses the official client: pip install 'needle-router[demo]'\n"


def test_there_are_at_least_fourteen_turns_with_names_of_their_own():
    assert len({turn.shows for turn in TURNS}) == len(TURNS) >= 14
    assert {turn.shows for turn in TURNS} == set(EXPECTED)


def test_keep_goes_on_serving_until_a_signal(cli):
    with cli.serving("--keep", command="demo") as demo:
        assert demo.get("/readyz")[0] == 200
        demo.process.send_signal(signal.SIGINT)
        assert demo.until_ended() == 0


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("turn off the basement lights", [("set_lights", {"room": "basement", "on": False})]),
        ("switch the attic lights on", [("set_lights", {"room": "attic", "on": True})]),
        ("don\N{RIGHT SINGLE QUOTATION MARK}t turn on the office lights", []),
        (
            "turn on the kitchen lights and get the weather in Paris",
            [("set_lights", {"room": "kitchen", "on": True}), ("get_weather", {"city": "Paris"})],
        ),
        ("are the kitchen lights on?", []),
        ("set a timer for 5 minutes", [("set_timer", {"minutes": 5})]),
        ("dim the study to 20", [("set_brightness", {"room": "study", "level": 20})]),
        ("set the thermostat to 20", [("set_thermostat", {"temperature": 20})]),
        ("open drawer 3", []),
    ],
)
def test_the_upstream_understands_what_the_demo_says(text, calls):
    assert spoken_calls(text, [tool["function"]["name"] for tool in HOME]) == calls


@pytest.mark.anyio
async def test_the_upstream_speaks_the_api_streamed_and_not():
    with listen("127.0.0.1", 0) as sock:
        url = url_of(sock)
        http = openai.DefaultAsyncHttpxClient(trust_env=False)
        async with (
            serving(DemoUpstream(), sock, demo_config(url)),
            openai.AsyncOpenAI(base_url=url + "/v1", api_key="k", max_retries=0, http_client=http) as client,
        ):
            assert [model.id async for model in client.models.list()] == [MODEL]
            asked = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "turn on the kitchen lights and sing me a song"}],
                "tools": HOME,
            }
            whole = await client.chat.completions.create(**asked)
            message = whole.choices[0].message
            assert message.content == "La la, the lamps are lit, la la, and so are we."
            assert message.tool_calls[0].function.arguments == '{"room": "kitchen", "on": true}'
            assert whole.choices[0].finish_reason == "tool_calls"
            assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens > 100
            async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
                final = await stream.get_final_completion()
            assert final.choices[0].message.content.strip() == message.content
            assert final.choices[0].message.tool_calls[0].function.name == "set_lights"
            assert final.usage == whole.usage
            with pytest.raises(openai.NotFoundError):
                await client.embeddings.create(model=MODEL, input="x")
