"""Structured output without tools: nested objects, lists, members and formats, alone and in front of an upstream."""

import json

import httpx
import pytest
from tests.router.support import CannedUpstream, alone, envelope, running
from tests.servers import until

pytestmark = pytest.mark.anyio
TEXT = "order two large teas for Ada, ada@example.org, on 2026-12-24"
ORDER = {
    "type": "object",
    "properties": {
        "customer": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "email": {"type": "string", "format": "email"}},
            "required": ["name", "email"],
            "additionalProperties": False,
        },
        "drinks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"kind": {"enum": ["tea", "coffee"]}, "size": {"enum": ["small", "large"]}},
                "required": ["kind"],
            },
        },
        "day": {"type": "string", "format": "date"},
        "count": {"type": "integer"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["customer", "drinks", "day", "count", "note"],
    "additionalProperties": False,
}
FOUND = {
    "customer": {"name": "Ada", "email": "ada@example.org"},
    "drinks": [{"kind": "tea", "size": "large"}],
    "day": "2026-12-24",
    "count": 2,
    "note": None,
}


def body(**fields):
    wanted = {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER, "strict": True}}
    return {"model": "big", "messages": [{"role": "user", "content": TEXT}], "response_format": wanted, **fields}


def said(confidence=0.97, **changes):
    return {"envelopes": [envelope({"name": "order", "arguments": {**FOUND, **changes}}, confidence=confidence)]}


async def post(router, sent):
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(f"{router.url}/v1/chat/completions", json=sent)


def content(answer):
    return json.loads(answer.json()["choices"][0]["message"]["content"])


async def test_a_sure_object_is_answered_in_front_of_an_upstream(tmp_path):
    async with running(tmp_path, said()) as router:
        answer = await post(router, body())
        assert (answer.headers["x-needle-route"], answer.headers["x-needle-reason"]) == ("local", "extracted")
        assert content(answer) == FOUND
        assert router.upstream.bodies == []


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({"count": "2"}, {"count": 2}, id="a number as text"),
        pytest.param({"count": 2.0}, {"count": 2}, id="a whole number with a point"),
        pytest.param({"drinks": [{"kind": "Tea", "size": "LARGE"}]}, {}, id="members in other letter case"),
    ],
)
async def test_what_can_be_mended_without_loss_is_mended(tmp_path, given, wanted):
    async with running(tmp_path, said(**given)) as router:
        assert content(await post(router, body())) == {**FOUND, **wanted}


async def test_a_missing_value_that_may_be_null_is_null(tmp_path):
    arguments = {key: value for key, value in FOUND.items() if key != "note"}
    async with running(tmp_path, {"envelopes": [envelope({"name": "order", "arguments": arguments})]}) as router:
        assert content(await post(router, body())) == FOUND


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"confidence": 0.3}, id="little confidence"),
        pytest.param({"confidence": None}, id="no confidence"),
        pytest.param({"day": "Christmas Eve"}, id="not of the format"),
        pytest.param({"customer": {"name": "Ada", "email": "nowhere"}}, id="a nested value not of the format"),
        pytest.param({"customer": {"name": "Ada"}}, id="a nested value missing"),
        pytest.param({"drinks": [{"kind": "cocoa"}]}, id="no member"),
        pytest.param({"drinks": {"kind": "tea"}}, id="no list"),
        pytest.param({"count": 2.5}, id="no whole number"),
        pytest.param({"customer": {"name": "Grace", "email": "ada@example.org"}}, id="a name that nobody said"),
        pytest.param({"more": 1}, id="a key too many"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_object_in_doubt_goes_to_the_upstream(tmp_path, changes, stream):
    async with running(tmp_path, said(**changes)) as router:
        answer = await post(router, body(stream=stream))
        assert answer.headers["x-needle-reason"] == "extraction-uncertain"
        assert len(router.upstream.bodies) == 1


async def test_a_text_that_says_more_than_the_object_holds_goes_to_the_upstream(tmp_path):
    async with running(tmp_path, said()) as router:
        more = [{"role": "user", "content": f"{TEXT}, one with milk"}]
        assert (await post(router, body(messages=more))).headers["x-needle-reason"] == "extraction-uncertain"


async def test_no_object_goes_to_the_upstream_and_is_a_refusal_alone(tmp_path):
    async with running(tmp_path, {"envelopes": [envelope()]}) as router:
        assert (await post(router, body())).headers["x-needle-reason"] == "extraction-uncertain"
    (tmp_path / "alone").mkdir()
    async with alone(tmp_path / "alone", {"envelopes": [envelope()]}) as router:
        message = (await post(router, body())).json()["choices"][0]["message"]
        assert (message["content"], message["refusal"]) == (None, "because")


async def test_alone_a_doubtful_object_is_served_with_its_doubts(tmp_path):
    async with alone(tmp_path, said(confidence=0.1, day="Christmas Eve")) as router:
        answer = await post(router, body())
        assert content(answer)["day"] == "Christmas Eve"
        assert {"invalid-arguments", "below-threshold"} <= set(answer.json()["x_needle"]["warnings"])


async def test_a_local_answer_streams_the_same_object(tmp_path):
    async with running(tmp_path, said()) as router:
        answer = await post(router, body(stream=True))
        chunks = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
        assert json.loads(text) == FOUND


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("words", "comparison"),
    [
        pytest.param(json.dumps(FOUND, indent=2), "agree", id="the same object"),
        pytest.param(json.dumps({**FOUND, "count": 3}), "arguments-differ", id="another number"),
        pytest.param("I cannot tell.", "upstream-none", id="no object"),
    ],
)
async def test_in_shadow_the_upstream_s_object_is_compared(tmp_path, words, comparison, stream):
    heard = []
    async with running(tmp_path, said(), upstream=CannedUpstream(words=words), mode="shadow") as router:
        router.router.services.on_compared.append(heard.append)
        await post(router, body(stream=stream))
        await until(lambda: heard)
    assert heard[0].comparison == comparison
