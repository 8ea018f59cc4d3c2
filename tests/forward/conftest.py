"""The reverse proxy between a raw client and a recording upstream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.servers import RecordingUpstream, Script, recording, serving

from needle_router.config.schema import Upstream
from needle_router.forward.proxy import ReverseProxy


@dataclass
class Setup:
    """Where to ask, what the upstream saw, which upstream failures were noted."""

    url: str
    upstream: RecordingUpstream
    proxy: ReverseProxy
    errors: list[str]


@contextlib.asynccontextmanager
async def proxied(*answers: Script, suffix: str = "/v1", **settings) -> AsyncIterator[Setup]:
    """A proxy in front of a recording upstream that answers by the script."""
    errors: list[str] = []
    async with recording(*answers) as upstream:
        proxy = ReverseProxy(Upstream(base_url=upstream.base_url + suffix, **settings), on_error=errors.append)
        async with serving(proxy, lifespan="off") as url:
            try:
                yield Setup(url, upstream, proxy, errors)
            finally:
                await proxy.aclose()


@pytest.fixture
def through():
    """`async with through(*answers) as setup`."""
    return proxied
