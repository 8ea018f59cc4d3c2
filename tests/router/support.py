"""A whole router over a scripted engine and a canned upstream, all of it on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from tests.servers import serving, until

from needle_router import create_app
from needle_router.config.schema import Config
from needle_router.engine.base import EngineState
from needle_router.middleware import NeedleRouter

LIGHT = {
    "type": "function",
    "function": {
        "name": "set_light",
        "description": "Switch the light of a room",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
            "required": ["room", "on"],
        },
    },
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
KITCHEN = {"name": "set_light", "arguments": {"room": "kitchen", "on": True}}
TEXT = "turn on the kitchen light"


def envelope(*calls: dict[str, Any], confidence: float | None = 0.97, **changes: Any) -> dict[str, Any]:
    """An engine's envelope."""
    kind = "call" if calls else "respond"
    body = {
        "type": kind,
        "success": True,
        "function_calls": list(calls),
        "confidence": confidence,
        "reasoning": "because",
    }
    return {**body, "validation": {"ungrounded": [], "negation": False}, **changes}


def ask(text: str = TEXT, **fields: Any) -> dict[str, Any]:
    """A request body that offers both tools."""
    return {"model": "big", "messages": [{"role": "user", "content": text}], "tools": [LIGHT, WEATHER], **fields}


@dataclass
class CannedUpstream:
    """An OpenAI-compatible app that says `words` and makes `calls`, and remembers the bodies it was sent."""

    words: str = "Hello from upstream."
    calls: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    break_after: int | None = None
    pause_s: float = 0.0
    chunks: int = 3
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def app(self) -> Starlette:
        """The app."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
                Route("/v1/models", self.models),
                Route("/docs", self.models),
            ]
        )

    async def models(self, request: Request) -> JSONResponse:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [{"id": "big", "object": "model"}]})

    async def complete(self, request: Request):
        """POST /v1/chat/completions."""
        raw = await request.body()
        self.bodies.append(raw)
        self.headers.append(dict(request.headers))
        if self.status != 200:
            body = {"error": {"message": "no", "type": "server_error", "param": None, "code": None}}
            return JSONResponse(body, self.status, headers={"retry-after": "7"})
        if json.loads(raw).get("stream"):
            return StreamingResponse(self.stream(), media_type="text/event-stream")
        message = {"role": "assistant", "content": self.words, "tool_calls": self.wire_calls() or None}
        usage = {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}
        return JSONResponse(
            {**HEAD, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        )

    def wire_calls(self) -> list[dict[str, Any]]:
        """The calls in the API's form."""
        return [
            {
                "index": index,
                "id": f"call_up{index}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for index, call in enumerate(self.calls)
        ]

    async def stream(self) -> AsyncIterator[bytes]:
        """The answer in pieces; breaks off after `break_after` of them."""
        size = -(-len(self.words) // self.chunks)
        deltas = [{"role": "assistant", "content": ""}]
        deltas += [{"content": self.words[i : i + size]} for i in range(0, len(self.words), size)]
        deltas += [{"tool_calls": [call]} for call in self.wire_calls()]
        for number, delta in enumerate(deltas):
            if number == self.break_after:
                raise ConnectionError("the upstream breaks")
            yield self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            await asyncio.sleep(self.pause_s)
        yield self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        yield b"data: [DONE]\n\n"

    @staticmethod
    def event(body: dict[str, Any]) -> bytes:
        """One server-sent event."""
        return b"data: " + json.dumps({**HEAD, "object": "chat.completion.chunk", **body}).encode() + b"\n\n"


HEAD = {"id": "chatcmpl-up", "object": "chat.completion", "created": 1700000000, "model": "big-2026"}


def config_for(folder: Path, script: dict[str, Any] | None = None, *, upstream: str = "", **sections: Any) -> Config:
    """A configuration with a scripted engine; `sections` are merged over it."""
    values: dict[str, Any] = {
        "upstream": {"base_url": upstream, "connect_timeout_s": 2},
        "ledger": {"path": str(folder / "decisions.db")},
        "engine": {"backend": "scripted", "deadline_s": 3},
        "policy": [{"kind": "guards"}, {"kind": "threshold", "minimum": 0.7}],
        "prices": {"big": {"input": 2.0, "output": 8.0}},
    }
    if script is not None:
        path = folder / "script.json"
        path.write_text(json.dumps({"log": str(folder / "engine.log"), **script}))
        values["engine"]["script"] = str(path)
    for name, section in sections.items():
        values[name] = {**values[name], **section} if isinstance(section, dict) and name in values else section
    return msgspec.convert(values, Config)


@dataclass(frozen=True)
class Running:
    """A router that listens: its base URL, itself, and the upstream behind it."""

    url: str
    router: NeedleRouter
    upstream: CannedUpstream
    folder: Path

    def fed(self) -> list[str]:
        """The texts that the engine was given."""
        log = self.folder / "engine.log"
        entries = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [entry["text"] for entry in entries if entry["op"] == "complete"]

    @property
    def totals(self) -> dict[str, Any]:
        """`totals` of /-/status.json."""
        return self.router.services.totals.as_dict()


@contextlib.asynccontextmanager
async def running(
    folder: Path, script: dict[str, Any] | None = None, *, upstream: CannedUpstream | None = None, **sections: Any
) -> AsyncIterator[Running]:
    """A router in front of `upstream`, with the engine ready."""
    canned = upstream or CannedUpstream()
    async with contextlib.AsyncExitStack() as stack:
        base = await stack.enter_async_context(serving(canned.app()))
        router = create_app(config_for(folder, script, upstream=f"{base}/v1", **sections))
        url = await stack.enter_async_context(serving(router, lifespan="on"))
        await until(lambda: router.services.engine.health().state is not EngineState.LOADING)
        yield Running(url, router, canned, folder)


@contextlib.asynccontextmanager
async def alone(folder: Path, script: dict[str, Any], **sections: Any) -> AsyncIterator[Running]:
    """Needle alone: no upstream."""
    router = create_app(config_for(folder, script, **sections))
    async with serving(router, lifespan="on") as url:
        await until(lambda: router.services.engine.health().state is not EngineState.LOADING)
        yield Running(url, router, CannedUpstream(), folder)
