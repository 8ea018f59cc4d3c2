import pytest

from needle_router.engine.environ import FIXED, scrubbed


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "NEEDLE_ROUTER_UPSTREAM_API_KEY", "AUTHORIZATION",
        "DATABASE_PASSWORD", "HTTPS_PROXY", "LD_PRELOAD", "NEEDLE_FAKE_TOKEN", "LC_SECRET", "PYTHONSTARTUP",
        "NEEDLE_TELEMETRY_URL", "HF_ENDPOINT",
    ],
)  # fmt: skip
def test_a_worker_does_not_get(name):
    assert name not in scrubbed({name: "canary"})


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LC_ALL", "XDG_CACHE_HOME", "HF_HOME", "NEEDLE2_LIB_PATH", "NEEDLE3_LIB_PATH", "PYTHONPATH"],
)
def test_a_worker_gets(name):
    assert scrubbed({name: "value"})[name] == "value"


def test_telemetry_and_the_model_hub_are_off_whatever_the_router_was_told():
    told = {"NEEDLE_TELEMETRY": "1", "DO_NOT_TRACK": "0", "HF_HUB_OFFLINE": "0"}
    assert scrubbed(told) == FIXED
    assert FIXED == {
        "NEEDLE_TELEMETRY": "0",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
