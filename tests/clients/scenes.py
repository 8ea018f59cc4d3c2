"""What is played with a client, and what must be true afterwards at all three ends: application, engine, upstream.

A scene is a user's sentence, what the engine finds in it, and what the upstream says. A check gives every fault it
finds as a sentence, so that a wrong run says what was wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.router.support import KITCHEN, CannedUpstream, Running, envelope

KEY = "key-of-the-client"
WORDS = "The kitchen light is on."
SWITCHED = [{"room": "kitchen", "on": True}]
BOOKING = {"city": "Lagos", "guests": 4}
#: The upstream's words come in this many pieces when they are streamed.
PIECES = 4
Report = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """One thing that clients do.

    Where an object is to be filled in (`fills`), the engine calls the tool as which the client asks for it: `prefix`
    and the client's `answer_tool`.
    """

    name: str
    says: str
    check: Callable[[Scene, Report, Running], Iterator[str]]
    streamed: bool = False
    fills: bool = False
    prefix: str = ""

    def script(self, answer_tool: str) -> dict[str, Any]:
        """The engine's script: always the same answer, so that a second question to it would show."""
        call = {"name": f"{self.prefix}{answer_tool}", "arguments": BOOKING} if self.fills else KITCHEN
        return {"envelopes": [envelope(call)]}

    def faults(self, report: Report, router: Running) -> list[str]:
        """Everything that is not as it should be; empty when the scene was played well."""
        found = [*self.check(self, report, router), *routed(self, router)]
        reasons = router.router.services.totals.reasons()
        return [*found, f"the reasons were {reasons}"] if found else []


def upstream() -> CannedUpstream:
    """An upstream that says the same words to everything."""
    return CannedUpstream(words=WORDS, chunks=PIECES)


def differs(what: str, found: Any, wanted: Any) -> Iterator[str]:
    """A fault, unless `found` is what was wanted."""
    if found != wanted:
        yield f"{what}: {found!r}, not {wanted!r}"


def routed(scene: Scene, router: Running) -> Iterator[str]:
    """The engine was asked once, and the totals say so."""
    asked = [text for text in router.fed() if scene.says in text]
    yield from differs("asked the engine", len(asked), 1)
    yield from differs("fed to the engine", len(router.fed()), 1)
    totals = router.totals
    routes = {route: totals[route]["requests"] for route in ("local", "upstream", "merged")}
    yield from differs("routes", routes, {"local": 1, "upstream": 0 if scene.fills else 1, "merged": 0})


def tool_loop(scene: Scene, report: Report, router: Running) -> Iterator[str]:
    """The call was answered here, executed by the client, and its result went upstream, whose words came back."""
    yield from differs("executed", report.get("switched"), SWITCHED)
    yield from differs("words", report.get("words"), WORDS)
    if scene.streamed:
        yield from differs("pieces", report.get("pieces"), PIECES)
    yield from differs("requests upstream", len(router.upstream.bodies), 1)
    for raw, headers in zip(router.upstream.bodies, router.upstream.headers, strict=True):
        yield from second_turn(scene, json.loads(raw))
        yield from differs("key", headers.get("authorization"), f"Bearer {KEY}")


def second_turn(scene: Scene, body: dict[str, Any]) -> Iterator[str]:
    """The request that went upstream holds our call and its result, which name the same id."""
    yield from differs("stream", bool(body.get("stream")), scene.streamed)
    made = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
    yield from differs("calls in the history", [call["function"]["name"] for call in made], ["set_light"])
    results = [message for message in body["messages"] if message["role"] == "tool"]
    yield from differs("results of", [message["tool_call_id"] for message in results], [call["id"] for call in made])
    yield from differs("results", [written(message["content"]) for message in results], ["kitchen: on"])


def written(content: Any) -> str:
    """The text of a message, in either of its forms."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def filled(scene: Scene, report: Report, router: Running) -> Iterator[str]:
    """The object was filled in here; nobody else was asked."""
    yield from differs("object", report.get("object"), BOOKING)
    yield from differs("requests upstream", len(router.upstream.bodies), 0)
    if scene.streamed and report.get("pieces", 0) < 1:
        yield "no object came as a part"


LIGHT_ON = "turn on the kitchen light"
BOOK = "Book a table in Lagos for 4 guests"
LOOP = Scene("loop", LIGHT_ON, tool_loop)
STREAM = Scene("stream", LIGHT_ON, tool_loop, streamed=True)
FILL = Scene("fill", BOOK, filled, fills=True)
#: For a client whose own stream is one of objects.
PARTIAL = Scene("partial", BOOK, filled, streamed=True, fills=True, prefix="Partial")
