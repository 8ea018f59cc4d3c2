"""The turns of the demo: what is sent, under a name that says what it shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from needle_router.cli.demo.home import HOME, MANY, TIMER, WEATHER

#: One grey pixel; nothing fetches it.
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
WEATHER_CALL = {
    "id": "call_earlier0000000000000001",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}


@dataclass(frozen=True, slots=True)
class DemoTurn:
    """One request: `extra` goes into the body beside model and messages."""

    shows: str
    messages: tuple[Mapping[str, Any], ...]
    extra: Mapping[str, Any] = field(default_factory=dict)


def _user(shows: str, text: str, **extra: Any) -> DemoTurn:
    return DemoTurn(shows, ({"role": "user", "content": text},), {"tools": HOME, **extra})


def _schema(name: str, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


TURNS: tuple[DemoTurn, ...] = (
    _user("a single call", "turn on the kitchen lights"),
    _user("another tool", "set the thermostat to 21"),
    _user("a question that a tool answers", "what's the weather in Paris?"),
    _user("a call, streamed", "is it raining in Oslo?", stream=True, stream_options={"include_usage": True}),
    _user("a call required", "bathroom lights on please", tool_choice="required", parallel_tool_calls=False),
    _user("two intents", "turn on the kitchen lights and get the weather in Paris"),
    _user(
        "a call and words, streamed",
        "turn on the bedroom lights and sing me a song",
        stream=True,
        stream_options={"include_usage": True},
    ),
    _user("a negation", "don't turn on the office lights"),
    _user("a question about a state", "are the kitchen lights on?"),
    _user("off-topic", "what is the capital of France"),
    _user("an unseen word", "turn off the basement lights"),
    _user("too many tools", "turn on the bedroom lights", tools=MANY),
    DemoTurn(
        "a tool's result",
        (
            {"role": "user", "content": "what's the weather in Paris?"},
            {"role": "assistant", "content": None, "tool_calls": [WEATHER_CALL]},
            {"role": "tool", "tool_call_id": WEATHER_CALL["id"], "content": "12 degrees, light rain"},
        ),
        {"tools": HOME},
    ),
    DemoTurn(
        "an image",
        (
            {
                "role": "user",
                "content": (
                    {"type": "text", "text": "what is on this picture?"},
                    {"type": "image_url", "image_url": {"url": PIXEL}},
                ),
            },
        ),
        {"tools": (WEATHER, TIMER)},
    ),
    DemoTurn(
        "json_object",
        ({"role": "user", "content": "answer in JSON: which city, which mood?"},),
        {"response_format": {"type": "json_object"}},
    ),
    DemoTurn(
        "structured extraction",
        ({"role": "user", "content": "make the garage lights 55%"},),
        {"response_format": _schema("set_brightness", room="string", level="integer")},
    ),
    DemoTurn("no tools at all", ({"role": "user", "content": "write a poem about rain"},)),
)
