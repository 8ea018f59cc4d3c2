"""The pool lives on whatever event loop the server runs, and in whatever thread that loop runs."""

import asyncio
import threading

import pytest
from tests.engine.support import alive, pool, task

from needle_router.config.schema import Engine

uvloop = pytest.importorskip("uvloop")


async def one_life():
    async with pool(Engine(backend="rust", model="tiny", workers=2)) as engine:
        asked = [engine.complete(task("turn on the kitchen lights"), deadline_s=30) for _ in range(6)]
        replies = await asyncio.gather(*asked)
        pids = engine.health().pids
    return [reply.envelope["function_calls"][0]["name"] for reply in replies], [alive(pid) for pid in pids]


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("where", ["the main thread", "another thread"])
def test_a_pool_runs_on(factory, where):
    seen = []

    def live():
        with asyncio.Runner(loop_factory=factory) as runner:
            seen.append(runner.run(one_life()))

    if where == "the main thread":
        live()
    else:
        thread = threading.Thread(target=live)
        thread.start()
        thread.join(60)
    assert seen == [(["set_lights"] * 6, [False, False])]
