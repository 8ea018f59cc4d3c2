"""Shared fixtures: one event loop backend for all async tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow at times: speed is no property that these tests check.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

# No test asks the model hub. Those of the supply chain talk to one of their own, and say so in their environments.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture
def anyio_backend():
    return "asyncio", {}
