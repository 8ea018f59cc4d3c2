"""Shared fixtures: one event loop backend for all async tests."""

import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio", {}
