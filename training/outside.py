"""Test cases that the generators have nothing to do with: (group names, query, tools, wanted calls, system) each.

`environments`: the frozen cases inside cactus-needle. `home`: sentences expanded from the templates of the package
home-assistant-intents (lights, climate, timers).
"""

import json
import pathlib
import random
import re


def environments(*, with_system):
    """The cases of `needle.environments`."""
    import needle
    from needle.environments import ENVIRONMENTS

    for name, module in ENVIRONMENTS.items():
        declared = [getattr(tool, "_needle_tool", None) or needle.build_schema(tool) for tool in module.TOOLS]
        tools = [{key: tool[key] for key in ("name", "description", "parameters")} for tool in declared]
        system = module.SYSTEM if with_system else None
        for case in module.TEST_CASES:
            yield (name, "category " + case["category"]), case["query"], tools, case["calls"], system


def _tool(name, description, optional=(), **properties):
    shapes = {key: {"type": kind} for key, kind in properties.items()}
    required = [key for key in properties if key not in optional]
    return {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": shapes, "required": required},
    }


HOME_TOOLS = [
    _tool("set_light", "Turn a room's light on or off", room="string", on="boolean"),
    _tool("set_brightness", "Set the light level of a room in percent", room="string", level="integer"),
    _tool("set_thermostat", "Set the target temperature in degrees", ("room",), temperature="integer", room="string"),
    _tool("get_temperature", "Read the current temperature of a room", room="string"),
    _tool("set_timer", "Start a countdown timer in minutes", minutes="integer"),
]
AREAS = "kitchen,bedroom,living room,bathroom,office,garage,hallway,basement,attic,guest room".split(",")
#: (intent, combination of slots, tool, arguments that the intent itself sets).
SOURCES = (
    ("HassTurnOn", "area_domain", "set_light", {"on": True}),
    ("HassTurnOff", "area_domain", "set_light", {"on": False}),
    ("HassLightSet", "area_brightness", "set_brightness", {}),
    ("HassClimateSetTemperature", "area_temperature", "set_thermostat", {}),
    ("HassClimateSetTemperature", "temperature_only", "set_thermostat", {}),
    ("HassClimateGetTemperature", "area_only", "get_temperature", {}),
    ("HassStartTimer", "minutes_only", "set_timer", {}),
)
RENAMED = {"area": "room", "brightness": "level", "timer_minutes": "minutes", "timer_half": "minutes"}
CLOSING = {"[": "]", "(": ")", "<": ">", "{": "}"}


def home(count, seed):
    """`count` sentences, as many of each source."""
    import home_assistant_intents

    folder = pathlib.Path(home_assistant_intents.__file__).parent
    data = json.loads((folder / "data" / "en.json").read_text())
    r = random.Random(seed)
    for intent, combination, tool, fixed in SOURCES:
        sentences = list(usable(data["intents"][intent]["data"], combination))
        seen = set()
        while len(seen) < count // len(SOURCES):
            expander = Expander(r, data["expansion_rules"])
            query = " ".join(expander.expand(r.choice(sentences)).split())
            if query not in seen:
                seen.add(query)
                yield (intent,), query, HOME_TOOLS, [wanted(tool, {**expander.slots, **fixed})], None


def usable(blocks, combination):
    """The sentences of a combination of slots whose slots we can fill."""
    for block in blocks:
        if (
            block["metadata"]["slot_combination"] == combination
            and block.get("slots", {}).get("domain", "light") == "light"
        ):
            for sentence in block["sentences"]:
                if all(slot.split(":")[0] in VALUES for slot in re.findall(r"\{([^}]*)\}", sentence)):
                    yield sentence


def wanted(tool, slots):
    """The call that the slots of a sentence stand for."""
    shapes = next(declared for declared in HOME_TOOLS if declared["name"] == tool)["parameters"]["properties"]
    slots = {RENAMED.get(key, key): value for key, value in slots.items()}
    return {"name": tool, "arguments": {key: slots[key] for key in shapes if key in slots}}


def _area(r):
    area = r.choice(AREAS)
    return area, area


def _number(low, high):
    def draw(r):
        number = r.randint(low, high)
        return str(number), number

    return draw


#: slot list -> how it draws (spoken form, value).
VALUES = {
    "area": _area,
    "brightness": _number(1, 100),
    "temperature": _number(10, 32),
    "timer_minutes": _number(1, 100),
    "timer_half": lambda r: ("half", 30),
}


class Expander:
    """Random expansion of a template: [optional], (a|b), (a;b) in any order, <rule>, {list:slot}; keeps the slots."""

    def __init__(self, r, rules):
        self.r, self.rules, self.slots = r, rules, {}

    def expand(self, text):
        """One sentence of the template."""
        position, out = 0, []
        while position < len(text):
            if text[position] in CLOSING:
                end = closing(text, position)
                out.append(self._part(text[position], text[position + 1 : end]))
                position = end + 1
            else:
                out.append(text[position])
                position += 1
        return "".join(out)

    def _part(self, opening, inner):
        if opening == "<":
            return self.expand(self.rules[inner])
        if opening == "{":
            source, _, slot = inner.partition(":")
            spoken, self.slots[slot or source] = VALUES[source](self.r)
            return spoken
        return self._group(inner) if opening == "(" or self.r.random() < 0.5 else ""

    def _group(self, inner):
        parts, depth, separator, current = [], 0, None, ""
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


def closing(text, start):
    """Where the bracket at `start` closes."""
    depth, opening = 0, text[start]
    for position in range(start, len(text)):
        depth += (text[position] == opening) - (text[position] == CLOSING[opening])
        if not depth:
            return position
    raise ValueError(f"no {CLOSING[opening]} after position {start} of {text!r}")
