"""The demo's world: the five tools that the demo model was trained on, and what the upstream understands of them.

`spoken_calls` stands in for a large model: a few patterns, but ones that know negation, questions and words that the
demo model has never seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Call = tuple[str, dict[str, Any]]


def _tool(name: str, description: str, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


LIGHTS = _tool("set_lights", "Turn a room's lights on or off", room="string", on="boolean")
BRIGHTNESS = _tool("set_brightness", "Set a room's light level", room="string", level="integer")
THERMOSTAT = _tool("set_thermostat", "Set the target temperature", temperature="integer")
WEATHER = _tool("get_weather", "Get the weather for a city", city="string")
TIMER = _tool("set_timer", "Start a countdown timer", minutes="integer")
HOME = (LIGHTS, BRIGHTNESS, THERMOSTAT, WEATHER, TIMER)
#: More tools than `guards.max_tools` allows the engine to be asked about.
MANY = (*HOME, *(_tool(f"open_drawer_{number}", f"Open drawer {number}") for number in range(1, 21)))

_ROOM = r"(?:the )?([a-z ]+?)"
_PATTERNS: tuple[tuple[str, str, Callable[[re.Match[str]], dict[str, Any]]], ...] = (
    (
        r"\b(?:turn|switch) (on|off) " + _ROOM + r" lights?\b",
        "set_lights",
        lambda m: {"room": m[2], "on": m[1] == "on"},
    ),
    (
        r"\b(?:turn|switch) " + _ROOM + r" lights? (on|off)\b",
        "set_lights",
        lambda m: {"room": m[1], "on": m[2] == "on"},
    ),
    (r"\bdim " + _ROOM + r" to (\d+)", "set_brightness", lambda m: {"room": m[1], "level": int(m[2])}),
    (r"\bthermostat to (\d+)", "set_thermostat", lambda m: {"temperature": int(m[1])}),
    (r"\bweather in ([a-z]+)", "get_weather", lambda m: {"city": m[1].title()}),
    (r"\btimer for (\d+) minutes?", "set_timer", lambda m: {"minutes": int(m[1])}),
    (r"\bopen drawer (\d+)", "open_drawer_{}", lambda m: {}),
)
_NEGATED = re.compile(r"\b(?:don't|do not|never)\b")


def spoken_calls(text: str, declared: Sequence[str]) -> list[Call]:
    """The calls that `text` asks for among the `declared` tools, in the order of the patterns."""
    folded = text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    if _NEGATED.search(folded):
        return []
    found = [
        (name.format(*match.groups()), arguments(match))
        for pattern, name, arguments in _PATTERNS
        for match in re.finditer(pattern, folded)
    ]
    return [call for call in found if call[0] in declared]


#: What the upstream says, by a word of the request; the last line is for everything else.
WORDS: tuple[tuple[str, str], ...] = (
    ("song", "La la, the lamps are lit, la la, and so are we."),
    ("capital of france", "Paris."),
    ("don't", "All right, I leave everything as it is."),
    ("are the", "I cannot see that from here; your home's panel shows it."),
    ("picture", "The picture shows a single grey pixel."),
    ("json", '{"city": "Oslo", "mood": "calm"}'),
    ("rain", "Rain on the window, soft and slow, tells the roofs what rivers know."),
)
OTHERWISE = "I am a canned voice: this is where your large model would answer."


def wants_words(text: str) -> bool:
    """Whether a request for calls asks for words too."""
    return "song" in text.lower()


def words_for(text: str) -> str:
    """The canned answer to `text`."""
    folded = text.lower()
    return next((answer for word, answer in WORDS if word in folded), OTHERWISE)
