"""What a request may ask for itself, by header: always less to be answered here, never more."""

import httpx
import pytest
from tests.router.support import KITCHEN, LIGHT, TEXT, WEATHER, alone, ask, envelope, running
from tests.servers import until

from needle_policies import Action, Decision, Plan, Planned, Situation
from needle_policies.limits import Limits
from needle_policies.testing import check_policy, evidence, features
from needle_router.serving.incoming import limits_of

pytestmark = pytest.mark.anyio
NOW = Situation()
MIXED = f"{TEXT} and tell me a joke"


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        pytest.param([], Limits(), id="nothing"),
        pytest.param([(b"x-needle-min-confidence", b"0.9")], Limits(0.9), id="a score"),
        pytest.param([(b"X-Needle-Min-Confidence", b" 1 ")], Limits(1.0), id="any case, outer blanks"),
        pytest.param([(b"x-needle-min-confidence", b".5")], Limits(0.5), id="no digit before the point"),
        pytest.param([(b"x-needle-min-confidence", b"0")], Limits(), id="zero asks for nothing"),
        pytest.param(
            [(b"x-needle-min-confidence", b"0.4"), (b"x-needle-min-confidence", b"0.8")],
            Limits(0.8),
            id="the strictest",
        ),
        pytest.param([(b"x-needle-never", b"a, b ,,c")], Limits(never=frozenset("abc")), id="names"),
        pytest.param(
            [(b"x-needle-never", b"a"), (b"x-needle-never", b"b")],
            Limits(never=frozenset("ab")),
            id="names of two fields",
        ),
        pytest.param([(b"x-needle-never", b"")], Limits(), id="no names"),
        pytest.param([(b"x-needle-min-confidence", b"1.01")], None, id="above one"),
        pytest.param([(b"x-needle-min-confidence", b"-0.1")], None, id="negative"),
        pytest.param([(b"x-needle-min-confidence", b"nan")], None, id="no number"),
        pytest.param([(b"x-needle-min-confidence", b"high")], None, id="a word"),
        pytest.param([(b"x-needle-min-confidence", b"")], None, id="empty"),
        pytest.param([(b"x-needle-min-confidence", "٠".encode("latin-1", "replace"))], None, id="odd digits"),
        pytest.param([(b"x-needle-min-confidence", b"0.5"), (b"x-needle-min-confidence", b"x")], None, id="one of two"),
        pytest.param([(b"x-needle-never", b"a b")], None, id="a name with a blank"),
        pytest.param([(b"x-needle-never", b"a\xe9")], None, id="a name that is not ASCII"),
    ],
)
def test_reading_the_fields(headers, limits):
    assert limits_of(headers) == limits


@pytest.mark.parametrize(
    ("limits", "found", "decision"),
    [
        pytest.param(Limits(), evidence("f", confidence=None), None, id="nothing asked"),
        pytest.param(Limits(0.9), evidence("f", confidence=0.9), None, id="exactly at"),
        pytest.param(Limits(0.9), evidence("f", confidence=0.899), "below-threshold", id="just below"),
        pytest.param(Limits(0.01), evidence("f", confidence=None), "confidence-unknown", id="no score"),
        pytest.param(Limits(never=frozenset("g")), evidence("f", "g"), "tool-never", id="one of the calls"),
        pytest.param(Limits(never=frozenset("g")), evidence("f"), None, id="another tool"),
    ],
)
def test_the_verdict_of_the_limits(limits, found, decision):
    said = limits.judge(features("f", "g"), NOW, found)
    assert said == (None if decision is None else Decision(Action.FORWARD, decision, "request"))


def test_the_plan_of_the_limits():
    limits = Limits(never=frozenset(("f", "g")))
    assert limits.plan(features("f", "g"), NOW) == Planned(Plan.FORWARD, "tool-never", "request")
    assert limits.plan(features("f", "h"), NOW) is None
    assert limits.plan(features(), NOW) is None
    check_policy(limits)


async def post(router, body=None, **headers):
    async with httpx.AsyncClient(timeout=20) as http:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return await http.post(f"{router.url}/v1/chat/completions", json=body or ask(), headers=names)


@pytest.mark.parametrize(
    ("headers", "body", "seen"),
    [
        pytest.param({"x_needle_min_confidence": "0.9"}, ask(), ("local", "confident"), id="at the score"),
        pytest.param({"x_needle_min_confidence": "0.91"}, ask(), ("upstream", "below-threshold"), id="above the score"),
        pytest.param({"x_needle_min_confidence": "0.1"}, ask(), ("local", "confident"), id="a loosening has no effect"),
        pytest.param({"x_needle_min_confidence": "0.91"}, ask(MIXED), ("upstream", "below-threshold"), id="a merge"),
        pytest.param({"x_needle_never": "set_light"}, ask(), ("upstream", "tool-never"), id="the called tool"),
        pytest.param({"x_needle_never": "get_weather"}, ask(), ("local", "confident"), id="another tool"),
        pytest.param({"x_needle_min_confidence": "lots"}, ask(), ("upstream", "bad-override"), id="nonsense"),
        pytest.param({"x_needle_never": "a b"}, ask(), ("upstream", "bad-override"), id="nonsense for names"),
    ],
)
async def test_a_request_tightens_what_is_answered_here(tmp_path, headers, body, seen):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN, confidence=0.9)]}) as router:
        answered = await post(router, body, **headers)
        assert (answered.headers["x-needle-route"], answered.headers["x-needle-reason"]) == seen
        await until(lambda: router.router.services.totals.reasons() == {seen[1]: 1})
        assert all(not name.startswith("x-needle") for sent in router.upstream.headers for name in sent)


async def test_a_lower_score_cannot_get_round_the_configured_one(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN, confidence=0.69)]}) as router:
        answered = await post(router, x_needle_min_confidence="0.1")
        assert answered.headers["x-needle-reason"] == "below-threshold"


async def test_the_engine_is_not_asked_where_the_request_wants_no_tool_from_it(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN)]}) as router:
        answered = await post(router, ask(tools=[LIGHT, WEATHER]), x_needle_never="get_weather, set_light")
        assert answered.headers["x-needle-reason"] == "tool-never"
        assert router.fed() == []


async def test_one_client_s_wish_does_not_shut_the_gate_for_others(tmp_path):
    policy = [
        {"kind": "guards"},
        {"kind": "adaptive", "attempts": 2, "probes": 0.0},
        {"kind": "threshold", "minimum": 0.7},
    ]
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN, confidence=0.9)]}, policy=policy) as router:
        for _ in range(3):
            assert (await post(router, x_needle_min_confidence="1")).headers["x-needle-route"] == "upstream"
        assert (await post(router)).headers["x-needle-route"] == "local"


async def test_a_race_obeys_too(tmp_path):
    policy = [{"kind": "guards"}, {"kind": "race"}, {"kind": "threshold", "minimum": 0.7}]
    async with running(tmp_path, {"envelopes": [envelope(KITCHEN, confidence=0.9)]}, policy=policy) as router:
        router.upstream.pause_s = 0.2
        answered = await post(router, x_needle_never="set_light,get_weather")
        assert (answered.headers["x-needle-route"], answered.headers["x-needle-reason"]) == ("upstream", "tool-never")
        await post(router, x_needle_min_confidence="0.95")
        await until(lambda: router.totals["upstream"]["requests"] == 2)
        assert router.totals["local"]["requests"] == 0


async def test_needle_alone_has_nobody_to_leave_it_to(tmp_path):
    async with alone(tmp_path, {"envelopes": [envelope(KITCHEN, confidence=0.9)]}) as router:
        answered = await post(router, x_needle_min_confidence="1", x_needle_never="set_light")
        assert (answered.status_code, answered.headers["x-needle-reason"]) == (200, "no-upstream")
