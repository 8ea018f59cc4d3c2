"""Sentences about lights, climate and timers, expanded from the templates of the package home-assistant-intents.

Its labels are intents, so each intent stands for one call of a tool that is declared here.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from needle_router.replay.cases import Example, SourceProblem

SENTENCES = 700
#: Sentences drawn for each one that is new, before a source counts as exhausted.
MAX_REPEATS = 200


def _tool(name: str, description: str, optional: Sequence[str] = (), **properties: str) -> dict[str, Any]:
    shapes = {key: {"type": kind} for key, kind in properties.items()}
    required = [key for key in properties if key not in optional]
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": shapes, "required": required},
    }


TOOLS = (
    _tool("set_light", "Turn a room's light on or off", room="string", on="boolean"),
    _tool("set_brightness", "Set the light level of a room in percent", room="string", level="integer"),
    _tool("set_thermostat", "Set the target temperature in degrees", ("room",), temperature="integer", room="string"),
    _tool("get_temperature", "Read the current temperature of a room", room="string"),
    _tool("set_timer", "Start a countdown timer in minutes", minutes="integer"),
)
AREAS = "kitchen,bedroom,living room,bathroom,office,garage,hallway,basement,attic,guest room".split(",")
#: (intent, combination of slots, tool, arguments that the intent itself sets).
INTENTS: tuple[tuple[str, str, str, Mapping[str, Any]], ...] = (
    ("HassTurnOn", "area_domain", "set_light", {"on": True}),
    ("HassTurnOff", "area_domain", "set_light", {"on": False}),
    ("HassLightSet", "area_brightness", "set_brightness", {}),
    ("HassClimateSetTemperature", "area_temperature", "set_thermostat", {}),
    ("HassClimateSetTemperature", "temperature_only", "set_thermostat", {}),
    ("HassClimateGetTemperature", "area_only", "get_temperature", {}),
    ("HassStartTimer", "minutes_only", "set_timer", {}),
)
RENAMED = MappingProxyType({"area": "room", "brightness": "level", "timer_minutes": "minutes", "timer_half": "minutes"})
CLOSING = MappingProxyType({"[": "]", "(": ")", "<": ">", "{": "}"})


def home(count: int, seed: int) -> Iterator[Example]:
    """`count` different sentences, as many of each intent; the same seed draws the same. Raises SourceProblem."""
    spec = importlib.util.find_spec("home_assistant_intents")
    if spec is None or spec.origin is None:
        raise SourceProblem("the package home-assistant-intents is not installed: pip install home-assistant-intents")
    file = Path(spec.origin).parent / "data" / "en.json"
    return expanded(json.loads(file.read_text("utf-8")), count, seed)


def expanded(data: Mapping[str, Any], count: int, seed: int) -> Iterator[Example]:
    """As `home`, from the package's data for one language; fewer sentences where the templates give no more."""
    r = random.Random(seed)
    for intent, combination, tool, fixed in INTENTS:
        sentences = list(usable(data["intents"][intent]["data"], combination))
        seen: set[str] = set()
        repeats = 0
        while sentences and len(seen) < count // len(INTENTS) and repeats < MAX_REPEATS:
            expander = Expander(r, data["expansion_rules"])
            query = " ".join(expander.expand(r.choice(sentences)).split())
            repeats += 1
            if query not in seen:
                seen.add(query)
                repeats = 0
                calls = [wanted(tool, {**expander.slots, **fixed})]
                yield Example(f"{intent}/{combination}/{len(seen)}", intent, query, TOOLS, calls)


def usable(blocks: Sequence[Mapping[str, Any]], combination: str) -> Iterator[str]:
    """The sentences of a combination of slots whose slots we can fill."""
    for block in blocks:
        if (
            block["metadata"]["slot_combination"] == combination
            and block.get("slots", {}).get("domain", "light") == "light"
        ):
            for sentence in block["sentences"]:
                if all(slot.split(":")[0] in VALUES for slot in re.findall(r"\{([^}]*)\}", sentence)):
                    yield sentence


def wanted(tool: str, slots: Mapping[str, Any]) -> dict[str, Any]:
    """The call that the slots of a sentence stand for."""
    shapes = next(declared for declared in TOOLS if declared["name"] == tool)["parameters"]["properties"]
    renamed = {RENAMED.get(key, key): value for key, value in slots.items()}
    return {"name": tool, "arguments": {key: renamed[key] for key in shapes if key in renamed}}


Draw = Callable[[random.Random], tuple[str, Any]]


def _area(r: random.Random) -> tuple[str, str]:
    area = r.choice(AREAS)
    return area, area


def _number(low: int, high: int) -> Draw:
    def draw(r: random.Random) -> tuple[str, int]:
        number = r.randint(low, high)
        return str(number), number

    return draw


#: slot list -> how it draws (spoken form, value).
VALUES: Mapping[str, Draw] = {
    "area": _area,
    "brightness": _number(1, 100),
    "temperature": _number(10, 32),
    "timer_minutes": _number(1, 100),
    "timer_half": lambda r: ("half", 30),
}


class Expander:
    """Random expansion of a template: [optional], (a|b), (a;b) in any order, <rule>, {list:slot}; keeps the slots."""

    def __init__(self, r: random.Random, rules: Mapping[str, str]) -> None:
        self.r, self.rules = r, rules
        self.slots: dict[str, Any] = {}

    def expand(self, text: str) -> str:
        """One sentence of the template."""
        position = 0
        out: list[str] = []
        while position < len(text):
            if text[position] in CLOSING:
                end = closing(text, position)
                out.append(self._part(text[position], text[position + 1 : end]))
                position = end + 1
            else:
                out.append(text[position])
                position += 1
        return "".join(out)

    def _part(self, opening: str, inner: str) -> str:
        if opening == "<":
            return self.expand(self.rules[inner])
        if opening == "{":
            source, _, slot = inner.partition(":")
            spoken, self.slots[slot or source] = VALUES[source](self.r)
            return spoken
        return self._group(inner) if opening == "(" or self.r.random() < 0.5 else ""

    def _group(self, inner: str) -> str:
        parts: list[str] = []
        depth, separator, current = 0, "", ""
        for character in inner:
            depth += (character in "[(<{") - (character in "])>}")
            if character in "|;" and not depth:
                parts, current, separator = [*parts, current], "", character
            else:
                current += character
        parts.append(current)
        if separator == ";":
            self.r.shuffle(parts)
            return " ".join(self.expand(part) for part in parts)
        return self.expand(self.r.choice(parts))


def closing(text: str, start: int) -> int:
    """Where the bracket at `start` closes."""
    depth, opening = 0, text[start]
    for position in range(start, len(text)):
        depth += (text[position] == opening) - (text[position] == CLOSING[opening])
        if not depth:
            return position
    raise ValueError(f"no {CLOSING[opening]} after position {start} of {text!r}")
