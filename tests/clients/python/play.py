"""What every Python client is asked to play: a tool, an object to fill in, and a report of what it got.

    python CLIENT.py SCENE "what the user says"

The base URL and the key stand in OPENAI_BASE_URL and OPENAI_API_KEY. One line of JSON on standard output says what the
application saw; whether that is right is judged by whoever started it.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

MODEL = "big"
BASE_URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
#: For clients that take tools in the API's form; the others derive the same from `set_light`.
TOOL = {
    "type": "function",
    "function": {
        "name": "set_light",
        "description": "Switch the light of a room",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
            "required": ["room", "on"],
            "additionalProperties": False,
        },
    },
}


class Booking(BaseModel):
    """A table booked in a city."""

    city: str
    guests: int


SWITCHED: list[dict[str, Any]] = []


def set_light(room: str, on: bool) -> str:
    """Switch the light of a room."""
    SWITCHED.append({"room": room, "on": on})
    return f"{room}: {'on' if on else 'off'}"


def user(text: str) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": text}


def executed(message: Any) -> list[dict[str, Any]]:
    """The messages that follow a message with calls, for clients that leave their execution to the application."""
    return [
        {"role": "tool", "tool_call_id": call.id, "content": set_light(**json.loads(call.function.arguments))}
        for call in message.tool_calls
    ]


def heard(pieces: list[str]) -> dict[str, Any]:
    """The report of words that came as a stream; empty pieces do not count."""
    spoken = [piece for piece in pieces if piece]
    return {"words": "".join(spoken), "pieces": len(spoken)}


def play(**scenes: Callable[[str], dict[str, Any]]) -> None:
    """Play the scene named on the command line, and report."""
    report = scenes[sys.argv[1]](sys.argv[2])
    print(json.dumps({**report, "switched": SWITCHED}))
