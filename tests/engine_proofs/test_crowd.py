"""Twenty-four clients at once, each with tools of its own: whose answer is whose, and who is inside the library."""

import asyncio
import json
from collections import Counter

import httpx
import pytest
from tests.router.support import alone, envelope, running

pytestmark = pytest.mark.anyio
CLIENTS = 24
CROWD = {"workers": 2, "queue_limit": 100, "deadline_s": 30}


def tool(number):
    parameters = {"type": "object", "properties": {"tag": {"type": "string"}}, "required": ["tag"]}
    return {"name": f"press_{number:02}", "description": f"Press button tag{number:02}", "parameters": parameters}


def text(number):
    return f"press button tag{number:02}"


def call(number):
    return {"name": f"press_{number:02}", "arguments": {"tag": f"tag{number:02}"}}


async def ask_all(url, *, rounds=1):
    """The answers of every client, by its number; each client asks its own question `rounds` times."""

    async def client(http, number):
        tools = [{"type": "function", "function": tool(number)}]
        body = {"model": "big", "messages": [{"role": "user", "content": text(number)}], "tools": tools}
        answers = [await http.post(f"{url}/v1/chat/completions", json=body) for _ in range(rounds)]
        assert {answer.status_code for answer in answers} == {200}
        return [answer.json() for answer in answers]

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, limits=limits) as http:
        found = await asyncio.gather(*(client(http, number) for number in range(CLIENTS)))
    return dict(enumerate(found))


def log_of(folder):
    return [json.loads(line) for line in (folder / "engine.log").read_text().splitlines()]


async def test_every_client_gets_the_answer_to_its_own_question(tmp_path):
    script = {"envelopes": [envelope()], "echo": True, "delay_ms": 3}
    async with alone(tmp_path, script, engine=CROWD) as router:
        answers = await ask_all(router.url, rounds=2)
    for number, mine in answers.items():
        echoed = {answer["x_needle"]["reasoning"] for answer in mine}
        assert echoed == {f"press_{number:02}|{text(number)}"}


async def test_two_workers_share_the_work_of_a_crowd(tmp_path):
    script = {"envelopes": [envelope()], "delays": {"step_ms": 10, "init_ms": 10}}
    async with alone(tmp_path, script, engine=CROWD) as router:
        await ask_all(router.url, rounds=2)
    entries = log_of(tmp_path)
    share = Counter(entry["pid"] for entry in entries if entry["op"] == "complete")
    assert sum(share.values()) == 2 * CLIENTS
    assert len(share) == 2
    assert min(share.values()) >= CLIENTS // 2
    # One thread a process owns the session, however many clients there are.
    assert len({(entry["pid"], entry["thread"]) for entry in entries}) == 2


@pytest.mark.native
@pytest.mark.parametrize("upstream", [False, True], ids=["alone", "in front of an upstream"])
@pytest.mark.parametrize("generation", [2, 3])
async def test_the_vendor_s_library_sees_one_thread_and_no_mixed_request(
    native, tmp_path, monkeypatch, generation, upstream
):
    # A reply depends on the text alone here, so a mixed-up answer would name another client's tool.
    lines = (f"tag{n:02}\t@sleep=3 {json.dumps(envelope(call(n)))}\n" for n in range(CLIENTS))
    settings, environ = native(generation, "".join(lines))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    widen(native.home)
    engine = {**CROWD, "backend": "native", "model": settings.model, "auto_pull": False}
    async with (running if upstream else alone)(tmp_path, {}, engine=engine) as router:
        answers = await ask_all(router.url, rounds=2)
        assert router.router.services.engine.health().restarts == 0
        assert router.upstream.bodies == []
    for number, mine in answers.items():
        for answer in mine:
            (made,) = answer["choices"][0]["message"]["tool_calls"]
            assert made["function"]["name"] == f"press_{number:02}"
            assert json.loads(made["function"]["arguments"]) == {"tag": f"tag{number:02}"}
    check_log(native.entries())


def widen(home):
    """Give weights for generation 3 a window: the router reads it from their header, and the smallest file has none."""
    for weights in home.rglob("needle3.cact"):
        header = bytearray(weights.read_bytes())
        header[13 * 4 : 14 * 4] = (8192).to_bytes(4, "little")
        weights.write_bytes(header)


def check_log(entries):
    """Two processes, one thread in each, and each text read by a session that holds that text's own tool alone."""
    inside = {(pid, thread) for pid, thread, _, _ in entries}
    assert len(inside) == len({pid for pid, _ in inside}) == 2
    holds = {}
    read = Counter()
    for pid, _, operation, argument in entries:
        if operation == "init":
            holds[pid] = [loaded["name"] for loaded in json.loads(argument)]
        elif operation == "complete":
            tag = argument.partition("tag")[2]
            assert holds[pid] == [f"press_{tag}"]
            read[pid] += 1
    assert sum(read.values()) == 2 * CLIENTS
    assert min(read.values()) > 0
