"""What a forwarded request leaves behind: nothing for the collector of cycles, which the server has look rarely."""

import gc
import subprocess
import sys

import httpx
import pytest
from tests.router.support import CannedUpstream, running

from needle_router.services import random_text
from needle_router.serving.exchange import Exchange

WORDS = {"model": "big", "messages": [{"role": "user", "content": "hello"}]}
REQUESTS = {
    "a chat that is passed on": ("/v1/chat/completions", WORDS),
    "a stream that is passed on": ("/v1/chat/completions", {**WORDS, "stream": True}),
    "a path that is no chat": ("/docs", WORDS),
}


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_forwarded_request_is_freed_without_the_collector(tmp_path, no_collector, kind):
    path, body = REQUESTS[kind]
    async with running(tmp_path, {"envelopes": [{}]}, upstream=CannedUpstream()) as router:
        async with httpx.AsyncClient() as client:
            for _ in range(5):
                answer = await client.post(router.url + path, json=body)
        assert answer.headers["x-needle-route"] == "upstream"
        # uvicorn keeps a connection's last request until the connection has gone.
        assert sum(isinstance(found, Exchange) for found in gc.get_objects()) <= 1


def test_the_server_lets_the_collector_look_rarely_and_not_at_the_imports():
    code = (
        "import gc; from needle_router.cli.serve import settle_collector; settle_collector(); "
        "print(gc.get_threshold(), gc.get_freeze_count() > 1000)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True).stdout
    assert told == "(20000, 10, 10) True\n"


@pytest.mark.parametrize("length", [0, 1, 21, 29, 500])
def test_random_text_has_its_length_and_only_letters_and_digits(length):
    text = random_text(length)
    assert len(text) == length
    assert text == "" or (text.isascii() and text.isalnum())


def test_random_text_uses_every_letter_and_digit():
    assert len(set(random_text(20_000))) == 62
