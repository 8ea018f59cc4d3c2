"""One request under way: what came, who listens, and what goes on to the upstream.

How it is answered is decided elsewhere (`routing`); every way of answering works on one of these and ends in `record`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from needle_policies import Action
from needle_router.forward.inner import hung_up
from needle_router.observe import Header, without_needle
from needle_router.pipeline import Attempt, Verdict
from needle_router.records import DecisionRecord
from needle_router.services import Services
from needle_router.serving.accounts import Sent, Timing, described
from needle_router.serving.incoming import read_body
from needle_router.surfaces import chat, chat_answers, completions
from needle_router.surfaces.base import Surface
from needle_router.turn import Turn
from needle_router.usage_option import with_usage

CHAT = Surface(chat.parse, chat_answers.render, chat_answers.chunks)
COMPLETIONS = Surface(completions.parse, completions.render, completions.chunks, routed=False)
#: Kinds of policies; one of a third party that is named otherwise goes into no header.
KIND = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: Of requests that are no chat completion, and so are passed on.
PASSED = Verdict(Action.FORWARD, "not-chat")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as the upstream gets it. `adds_usage`: it is asked for a stream's usage, which the client is not."""

    scope: Scope
    body: bytes
    adds_usage: bool = False


class NotedSend:
    """The client's `send`; `complete` once the client was sent the whole of its answer."""

    __slots__ = ("_send", "complete")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.complete = False

    async def __call__(self, message: Message) -> None:
        """Pass one message on."""
        # Before it is sent, because a client that has read the end may hang up while `send` still waits.
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


@dataclass(slots=True)
class Exchange:
    """One request and everything needed to answer it once."""

    services: Services
    app: ASGIApp
    scope: Scope
    receive: Receive
    send: Send
    headers: Sequence[Header]
    surface: Surface = CHAT
    timing: Timing = field(init=False)
    #: `send`, as an object of its own: a method kept here would make a cycle, which only the collector gets rid of.
    _noted: NotedSend = field(init=False)

    def __post_init__(self) -> None:
        self.timing = Timing(self.services.clock())
        self.send = self._noted = NotedSend(self.send)

    @property
    def complete(self) -> bool:
        """The client was sent the whole of its answer."""
        return self._noted.complete

    async def left(self) -> bool:
        """Wait until the client hangs up; false where its answer was whole, or where it cannot be known."""
        return await hung_up(self.receive) and not self.complete

    async def body(self) -> bytes:
        """The whole body; raises `BodyTooLarge` and `ClientGone`."""
        return await read_body(self.receive, self.headers, int(self.services.config.server.max_body_mb * 1024 * 1024))

    def outgoing(self, turn: Turn, *, readable: bool = False) -> Outgoing:
        """What the upstream is sent for a request that was read; `readable` asks for an answer that is not encoded."""
        wanted = self.services.config.upstream.include_usage and self.surface is CHAT
        if not (wanted and turn.stream and not turn.include_usage):
            return Outgoing(self.inner_scope(identity=readable), turn.raw)
        body = with_usage(turn.raw)
        return Outgoing(self.inner_scope(identity=True, length=len(body)), body, adds_usage=True)

    def inner_scope(self, *, identity: bool = False, length: int | None = None) -> Scope:
        """The scope for whoever answers: without our headers; `identity` asks for an answer that we can read, and
        `length` is that of the body where it is not the client's.
        """
        headers = without_needle(self.headers)
        if length is not None:
            headers = [(n, b"%d" % length if n.lower() == b"content-length" else v) for n, v in headers]
        if identity:
            headers = [h for h in headers if h[0].lower() != b"accept-encoding"]
            headers.append((b"accept-encoding", b"identity"))
        return {**self.scope, "headers": headers}

    def request_id(self) -> str:
        """A request id of ours; the client's own `x-client-request-id` is the upstream's business."""
        return "req_" + self.services.stamp().id.removeprefix("chatcmpl-")

    def own_headers(self, verdict: Verdict, route: str) -> list[Header]:
        """Our response headers; values come from closed sets or are numbers, never a tool's name."""
        if self.services.config.server.expose == "none":
            return []
        found: list[Header] = [
            (b"x-needle-route", route.encode()),
            (b"x-needle-reason", verdict.reason.encode()),
            (b"x-needle-overhead-ms", b"%.3f" % (self.overhead_s() * 1000)),
        ]
        if KIND.fullmatch(verdict.policy):
            found.append((b"x-needle-policy", verdict.policy.encode()))
        confidence = verdict.attempt.evidence.confidence if verdict.attempt is not None else None
        if confidence is not None:
            found.append((b"x-needle-confidence", b"%.4f" % confidence))
        return found

    def overhead_s(self) -> float:
        """Seconds the router added so far."""
        return self.timing.overhead_s(self.services.clock())

    def record(self, route: str, verdict: Verdict, turn: Turn | None, sent: Sent) -> None:
        """Note what happened."""
        self.services.record(self.described(route, verdict, turn, sent))

    def described(self, route: str, verdict: Verdict, turn: Turn | None, sent: Sent) -> DecisionRecord:
        """What happened, as it stands now."""
        return described(self.services, self.timing, route, verdict, turn=turn, sent=sent)

    def note_engine(self, attempt: Attempt | None) -> None:
        """The engine's own time is none that the router added."""
        if attempt is not None:
            self.timing.engine_s = attempt.outcome.compute_s
            self.timing.queue_s = attempt.outcome.queue_wait_s
