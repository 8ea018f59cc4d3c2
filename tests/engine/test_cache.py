from tests.engine.support import task

from needle_router.engine.cache import DecisionCache
from needle_router.task import EngineFailure, EngineReply

REPLY = EngineReply({"type": "call"}, queue_wait_s=0.1, compute_s=0.2)


def test_an_equal_task_gets_the_kept_answer_marked_as_cached_and_free():
    cache = DecisionCache(2)
    cache.put(task("a"), REPLY)
    assert cache.get(task("a")) == EngineReply({"type": "call"}, reinitialized=False, cached=True)


def test_any_difference_makes_another_question():
    cache = DecisionCache(2)
    cache.put(task("a"), REPLY)
    assert cache.get(task("a", system="date: 2026-12-01 Tue")) is None
    assert cache.get(task("a", tools=())) is None
    assert cache.get(task("a", max_new_tokens=255)) is None


def test_the_least_recently_used_answer_goes_first():
    cache = DecisionCache(2)
    for text in ("a", "b"):
        cache.put(task(text), REPLY)
    assert cache.get(task("a"))
    cache.put(task("c"), REPLY)
    assert [cache.get(task(text)) is not None for text in ("a", "b", "c")] == [True, False, True]


def test_failures_errors_and_replayed_sessions_are_not_kept():
    cache = DecisionCache(9)
    cache.put(task("a"), EngineFailure("engine-busy"))
    cache.put(task("b"), EngineReply({"success": False}))
    cache.put(task("c", replay=True), REPLY)
    assert [cache.get(task("a")), cache.get(task("b")), cache.get(task("c", replay=True))] == [None] * 3


def test_no_entries_means_no_cache():
    cache = DecisionCache(0)
    cache.put(task("a"), REPLY)
    assert cache.get(task("a")) is None
