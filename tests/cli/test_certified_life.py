"""From shadow traffic to a certificate in force and to its end: real server, model, ledger and command line."""

import asyncio
import json
import signal

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.servers import serving

from needle_router.cli.demo.home import HOME
from needle_router.cli.demo.upstream import MODEL, DemoUpstream

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
LIGHTS = [
    f"{verb} {state} the {room.replace('_', ' ')} lights"
    for room in "kitchen bedroom bathroom office garage hallway attic study porch living_room".split()
    for verb in ("turn", "switch")
    for state in ("on", "off")
]
TIMERS = [f"set a timer for {minutes} minutes" for minutes in range(2, 38)]
#: The upstream has no pattern for these and only talks: each is a call that it does not make.
UNLIKE = [f"make it {degrees} degrees" for degrees in (19, 21, 23)]
CONFIG = """
mode = "{mode}"
[server]
port = 0
[upstream]
base_url = "{upstream}/v1"
[engine]
backend = "rust"
model = "tiny"
[ledger]
path = "decisions.db"
[[policy]]
kind = "guards"
[[policy]]
kind = "threshold"
minimum = 0.99
{more}
"""


class Client:
    """Sends turns to a running router."""

    def __init__(self, http, url):
        self.http, self.url = http, url

    async def ask(self, text, tools=HOME, system="You run a home. Today is Monday, 30 November 2026."):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        body = {"model": MODEL, "messages": messages, "tools": list(tools)}
        answer = await self.http.post(f"{self.url}/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-needle-route"], answer.headers["x-needle-reason"]

    async def until(self, condition):
        """Wait until /-/status.json is as wanted."""
        async with asyncio.timeout(60):
            while not condition((await self.http.get(f"{self.url}/-/status.json")).json()):  # noqa: ASYNC110  # it is another process
                await asyncio.sleep(0.05)


def changed(tool):
    """The tool with one word more in its description."""
    function = tool["function"]
    return {**tool, "function": {**function, "description": function["description"] + ", kindly"}}


async def run(cli, *arguments):
    code, out, err = await asyncio.to_thread(cli, *arguments)
    return code, out, err


async def test_shadow_traffic_becomes_a_certificate_that_a_changed_schema_voids(tmp_path):
    cli, file = Cli(tmp_path), tmp_path / "needle-router.toml"
    async with serving(DemoUpstream(), lifespan="off") as upstream, httpx.AsyncClient(timeout=30) as http:
        file.write_text(CONFIG.format(mode="shadow", upstream=upstream, more=""))
        with cli.serving() as server:
            client = Client(http, server.url)
            await client.until(lambda status: status["engine"]["state"] == "ready")
            turns = [*LIGHTS, *TIMERS, *UNLIKE]
            for number, text in enumerate(turns, 1):
                assert await client.ask(text) == ("upstream", "shadow")
                if number % 20 == 0 or text is turns[-1]:
                    # The engine runs behind the answers: nobody should run away from it.
                    await client.until(lambda status, sent=number: status["ledger"]["written"] >= sent)

            code, out, _ = await run(cli, "report", "--json")
            tools = json.loads(out)["agreement"]["tools"]
            shares = {name: (row["n"], row["share"]) for name, row in tools.items()}
            assert (code, shares) == (0, {"set_lights": (40, 1.0), "set_timer": (36, 1.0), "set_thermostat": (3, 0.0)})

            certify = (
                "calibrate",
                "--max-error",
                "0.1",
                "--delta",
                "0.1",
                "--per-tool",
                "--output",
                "certificates.json",
            )
            code, out, err = await run(cli, *certify)
            assert (code, err) == (0, "")
            assert "set_lights: threshold " in out
            assert "set_timer: threshold " in out
            assert "set_thermostat: not enough data: 33 clean offloadable calls needed, have 3, 3 of them wrong" in out

            file.write_text(CONFIG.format(mode="on", upstream=upstream, more='certificates = "certificates.json"'))
            server.process.send_signal(signal.SIGHUP)
            await client.until(lambda status: status["mode"] == "on")
            assert await client.ask(LIGHTS[0]) == ("local", "confident")
            assert await client.ask(TIMERS[3]) == ("local", "confident")
            tomorrow = "You run a home. Today is Tuesday, 1 December 2026."
            assert await client.ask(LIGHTS[0], system=tomorrow) == ("local", "confident")
            assert await client.ask(UNLIKE[0]) == ("upstream", "uncertified")

            tools = [changed(HOME[0]), *HOME[1:]]
            assert await client.ask(LIGHTS[0], tools) == ("upstream", "certificate-void")
            assert await client.ask(TIMERS[3], tools) == ("upstream", "certificate-void")
            assert await client.ask(LIGHTS[0], system="You run a factory.") == ("upstream", "certificate-void")
            server.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.until_ended) == 0
