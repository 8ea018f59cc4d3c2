"""The narrow generator: five smart-home tools, ten rooms, twelve cities, single calls and small talk; no other word.

An example is `{"query", "tools", "answers", "kind"}`, as in the broad generator.
"""

import random

ROOMS = ("kitchen bedroom living_room bathroom office garage hallway attic study porch").split()
ROOMS = [room.replace("_", " ") for room in ROOMS]
CITIES = "Paris Lagos Berlin Tokyo Madrid Oslo Cairo Lima Rome Dublin Delhi Boston".split()
SMALL_TALK = (
    "hello there",
    "who are you",
    "tell me a joke",
    "what is the capital of France",
    "thanks a lot",
    "write a poem about rain",
    "how are you today",
    "what is 2 plus 2",
    "good morning",
    "explain gravity",
)


def _tool(name, description, **properties):
    shapes = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": shapes, "required": list(properties)}
    return {"name": name, "description": description, "parameters": parameters}


TOOLS = (
    _tool("set_lights", "Turn a room's lights on or off", room="string", on="boolean"),
    _tool("set_brightness", "Set a room's light level", room="string", level="integer"),
    _tool("set_thermostat", "Set the target temperature", temperature="integer"),
    _tool("get_weather", "Get the weather for a city", city="string"),
    _tool("set_timer", "Start a countdown timer", minutes="integer"),
)
#: tool -> phrasings; a phrasing names the arguments that it speaks.
PHRASES = {
    "set_lights": (
        "turn {on} the {room} lights",
        "switch the {room} lights {on}",
        "{room} lights {on} please",
        "please turn the lights {on} in the {room}",
    ),
    "set_brightness": (
        "dim the {room} to {level}",
        "set {room} brightness to {level} percent",
        "make the {room} lights {level}%",
    ),
    "set_thermostat": (
        "set the thermostat to {temperature}",
        "make it {temperature} degrees",
        "heat the house to {temperature}",
    ),
    "get_weather": ("what's the weather in {city}?", "weather in {city} please", "is it raining in {city}"),
    "set_timer": ("set a timer for {minutes} minutes", "start a {minutes} minute timer", "timer {minutes} minutes"),
}


class Generator:
    """Draws examples; there is only the split train."""

    SPLITS = ("train",)
    KINDS = (*PHRASES, "chat")

    def __init__(self, seed, split="train"):
        if split not in self.SPLITS:
            raise ValueError(f"the narrow generator has no split {split!r}")
        self.r = random.Random(seed)

    def example(self, kind=None):
        """One example, of a kind where one is given."""
        kind = kind or self.KINDS[self.r.randrange(len(self.KINDS))]
        values = self._values(kind)
        if kind == "chat":
            query, answers = self.r.choice(SMALL_TALK), []
        else:
            spoken = {**values, "on": "on" if values["on"] else "off"}
            query = self.r.choice(PHRASES[kind]).format(**spoken)
            wanted = next(tool for tool in TOOLS if tool["name"] == kind)["parameters"]["required"]
            answers = [{"name": kind, "arguments": {key: values[key] for key in wanted}}]
        return {"query": query, "tools": self._declared(kind), "answers": answers, "kind": kind}

    def _values(self, kind):
        room, city, number = self.r.choice(ROOMS), self.r.choice(CITIES), self.r.randint(1, 99)
        on = kind == "set_lights" and self.r.random() < 0.5
        temperature = self.r.randint(10, 35) if kind == "set_thermostat" else 0
        return {"room": room, "city": city, "level": number, "minutes": number, "on": on, "temperature": temperature}

    def _declared(self, kind):
        """The tool of the kind and up to two others, or one to two others for small talk."""
        tools = [tool for tool in TOOLS if tool["name"] == kind]
        others = [tool for tool in TOOLS if tool["name"] != kind]
        self.r.shuffle(others)
        tools += others[: self.r.randint(0 if tools else 1, 2)]
        self.r.shuffle(tools)
        return tools
