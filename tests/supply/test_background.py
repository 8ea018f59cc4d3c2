"""The engine that fetches what it lacks: when, how often, and what it says meanwhile."""

import asyncio
import contextlib

import pytest
from tests.engine.support import task, until

from needle_router.config.schema import Engine
from needle_router.engine.base import EngineState
from needle_router.engine.pool import EnginePool
from needle_router.supply.background import SuppliedEngine, fetch_environ, supplied
from needle_router.supply.run import read_result
from needle_router.task import EngineFailure, EngineReply

pytestmark = pytest.mark.anyio
OK = {"ok": True, "again": False, "detail": "fetched"}
AWAY = {"ok": False, "again": True, "detail": "the hub is away"}
REFUSED = {"ok": False, "again": False, "detail": "other bytes"}


class Fetches:
    """Answers one after the other; the last one repeats. `gate` holds the answers back."""

    def __init__(self, *answers, then=lambda: None):
        self.answers, self.asked, self.then = list(answers), [], then
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, model):
        self.asked.append(model)
        await self.gate.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer["ok"]:
            self.then()
        return answer


@pytest.fixture
def lacking(native, fake_libraries, names):
    """A native pool whose library is not there, and a function that puts it there."""
    settings, environ = native(2, '*\t{"type":"respond"}\n')
    del environ["NEEDLE2_LIB_PATH"]
    path = native.home / ".cache" / "cactus-needle" / names[2][0].installed

    def bring():
        path.parent.mkdir(parents=True)
        path.write_bytes(fake_libraries[2].read_bytes())

    return EnginePool(settings, environ=environ), bring


@contextlib.asynccontextmanager
async def running(pool, fetches, **options):
    engine = SuppliedEngine(pool, fetches, **options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.aclose()


async def test_what_is_missing_is_fetched_and_then_loaded(lacking):
    pool, bring = lacking
    fetches = Fetches(OK, then=bring)
    fetches.gate.clear()
    async with running(pool, fetches) as engine:
        await until(lambda: fetches.asked)
        assert engine.health().state is EngineState.LOADING
        assert engine.health().detail == "needle-2 is being fetched from the model hub"
        assert isinstance(await engine.complete(task("x"), deadline_s=1), EngineFailure)
        fetches.gate.set()
        await until(lambda: engine.health().state is EngineState.READY)
        assert isinstance(await engine.complete(task("x"), deadline_s=10), EngineReply)
    assert fetches.asked == ["needle-2"]
    assert engine.health().state is EngineState.OFF


async def test_a_hub_that_is_away_is_asked_again_ever_later(lacking, caplog):
    pool, bring = lacking
    fetches = Fetches(AWAY, AWAY, OK, then=bring)
    async with running(pool, fetches, first_delay_s=0.01) as engine:
        await until(lambda: engine.health().state is EngineState.READY)
    assert fetches.asked == ["needle-2"] * 3
    told = [record.getMessage() for record in caplog.records if "not fetched" in record.getMessage()]
    assert told == [
        "needle-2 was not fetched, next try in 0.01 s: the hub is away",
        "needle-2 was not fetched, next try in 0.02 s: the hub is away",
    ]


async def test_what_was_refused_is_not_asked_for_again(lacking):
    pool, _ = lacking
    fetches = Fetches(REFUSED)
    async with running(pool, fetches, first_delay_s=0.01) as engine:
        await until(lambda: engine.health().detail == "needle-2 was not fetched: other bytes")
        assert engine.health().state is EngineState.FAILED
        await until(lambda: engine._task.done())
    assert fetches.asked == ["needle-2"]


async def test_what_somebody_else_brings_ends_the_waiting(lacking):
    pool, bring = lacking
    fetches = Fetches(AWAY)
    async with running(pool, fetches) as engine:
        await until(lambda: "the hub is away" in engine.health().detail)
        bring()
        pool.retry()
        await until(lambda: engine.health().state is EngineState.READY)
        await until(lambda: engine._task.done())
    assert fetches.asked == ["needle-2"]


async def test_a_fault_while_fetching_leaves_a_failed_engine_and_no_exception(lacking, caplog):
    pool, _ = lacking

    async def broken(model):
        raise OSError("no process can be started")

    async with running(pool, broken) as engine:
        await until(lambda: engine._task.done())
        assert engine.health().state is EngineState.FAILED
    assert "fetching the engine stopped" in caplog.text


async def test_a_fetch_under_way_ends_with_the_engine(lacking):
    pool, _ = lacking
    fetches = Fetches(OK)
    fetches.gate.clear()
    async with running(pool, fetches):
        await until(lambda: fetches.asked)
    assert pool.health().state is EngineState.OFF


async def test_an_engine_that_lacks_nothing_fetches_nothing(native):
    settings, environ = native(2, '*\t{"type":"respond"}\n')
    fetches = Fetches(OK)
    async with running(EnginePool(settings, environ=environ), fetches) as engine:
        await until(lambda: engine.health().state is EngineState.READY)
        await until(lambda: engine._task.done())
    assert fetches.asked == []


@pytest.mark.parametrize(
    "environ, auto_pull, wanted",
    [
        pytest.param({}, True, True, id="by default"),
        pytest.param({}, False, False, id="switched off"),
        pytest.param({"HF_HUB_OFFLINE": "1"}, True, False, id="offline"),
        pytest.param({"HF_HUB_OFFLINE": "true"}, True, False, id="offline in words"),
        pytest.param({"HF_HUB_OFFLINE": "0"}, True, True, id="offline denied"),
    ],
)
async def test_when_fetching_is_wanted(environ, auto_pull, wanted):
    pool = EnginePool(Engine(), environ=environ)
    assert isinstance(supplied(pool, environ, auto_pull=auto_pull), SuppliedEngine) is wanted


async def test_the_fetching_process_gets_the_network_and_no_key_but_the_hub_s():
    environ = {
        "PATH": "/bin", "HOME": "/h", "HF_TOKEN": "t", "HF_ENDPOINT": "e", "HF_HOME": "c", "HTTPS_PROXY": "p",
        "https_proxy": "q", "SSL_CERT_FILE": "s", "OPENAI_API_KEY": "k", "NEEDLE_ROUTER_UPSTREAM_API_KEY": "k",
        "AWS_SECRET_ACCESS_KEY": "k",
    }  # fmt: skip
    kept = fetch_environ(environ)
    assert {name for name in environ if name not in kept} == {
        "OPENAI_API_KEY", "NEEDLE_ROUTER_UPSTREAM_API_KEY", "AWS_SECRET_ACCESS_KEY",
    }  # fmt: skip
    assert "HF_HUB_OFFLINE" not in kept


@pytest.mark.parametrize(
    "output, detail",
    [
        (b'noise\n{"ok": true, "again": false, "detail": "fetched"}\n', "fetched"),
        (b"", "the fetching process ended without a word"),
        (b"killed\n", "the fetching process ended without a word"),
        (b"[1]\n", "the fetching process ended without a word"),
    ],
)
async def test_the_last_word_of_the_fetching_process(output, detail):
    assert read_result(output)["detail"] == detail
