"""Pages in a browser cannot use a router that asks for no key."""

import httpx
import pytest
from tests.router.support import KITCHEN, ask, envelope, running

from needle_router.errors import Forbidden
from needle_router.visitors import check_host, check_origin, host_of, is_local


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("app.localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("[::1]", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("", False),
        ("null", False),
    ],
)
def test_what_is_this_machine(host, local):
    assert is_local(host) is local


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("a.example:80", "a.example"),
        ("[::1]:8088", "::1"),
        ("https://a.example:1", "a.example"),
        ("null", "null"),
        ("[", ""),
    ],
)
def test_the_host_is_read_out_of_a_field(value, host):
    assert host_of(value) == host


@pytest.mark.parametrize(
    "origin", [b"https://evil.example", b"null", b"file://", b"http://[", b"http://127.0.0.1.evil.example"]
)
def test_foreign_origins_are_refused(origin):
    with pytest.raises(Forbidden, match="allowed_origins"):
        check_origin([(b"Origin", origin)], ())
    check_origin([(b"origin", origin)], (origin.decode(),))


@pytest.mark.parametrize("origin", [b"http://localhost:3000", b"http://127.0.0.1:8088", b"http://[::1]"])
def test_local_origins_and_none_at_all_are_fine(origin):
    check_origin([(b"origin", origin)], ())
    check_origin([], ())


def test_own_endpoints_are_not_for_foreign_names():
    with pytest.raises(Forbidden, match="allowed_hosts"):
        check_host([(b"host", b"evil.example:8088")], ())
    check_host([(b"host", b"evil.example:8088")], ("evil.example",))
    check_host([(b"host", b"127.0.0.1:8088")], ())


@pytest.mark.anyio
async def test_over_http_pages_are_refused_and_programs_are_served(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router, httpx.AsyncClient(timeout=20) as http:

        async def status(path, method="POST", **headers):
            body = {"json": ask()} if method == "POST" else {}
            return (await http.request(method, router.url + path, headers=headers, **body)).status_code

        assert await status("/v1/chat/completions") == 200
        assert await status("/v1/chat/completions", origin="https://evil.example") == 403
        assert await status("/v1/embeddings", origin="https://evil.example") == 403
        assert await status("/v1/chat/completions", origin="http://localhost:5173") == 200
        assert await status("/-/status.json", "GET", host="evil.example") == 403
        assert await status("/metrics", "GET", host="evil.example") == 403
        assert await status("/healthz", "GET", host="evil.example") == 200
        assert await status("/v1/models", "GET", host="router.test") == 200


@pytest.mark.anyio
async def test_where_a_key_is_needed_the_origin_does_not_matter(tmp_path):
    script, keys = {"envelopes": [envelope(KITCHEN)]}, {"api_keys": ["rk"]}
    async with running(tmp_path, script, server=keys) as router, httpx.AsyncClient(timeout=20) as http:
        headers = {"origin": "https://app.example", "authorization": "Bearer rk"}
        answer = await http.post(f"{router.url}/v1/chat/completions", json=ask(), headers=headers)
        assert answer.status_code == 200
