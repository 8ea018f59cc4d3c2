"""The demo's upstream: an OpenAI-compatible chat endpoint with canned words and honest token counts.

It decides by `home.spoken_calls`, streams word by word, and reports usage that is counted from what it really read and
wrote (one token per four characters).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from needle_router.cli.demo.home import Call, spoken_calls, wants_words, words_for

MODEL = "demo-large"
CREATED = 1_750_000_000
JSON = b"application/json"


class DemoUpstream:
    """`POST /v1/chat/completions`, streamed or not, and `GET /v1/models`; 404 for the rest."""

    def __init__(self) -> None:
        self.requests = 0
        self._ids = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI call; the server that runs it has no lifespan."""
        match scope["method"], scope["path"]:
            case "POST", "/v1/chat/completions":
                self.requests += 1
                await self.chat(json.loads(await _body(receive)), send)
            case "GET", "/v1/models":
                row = {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "demo"}
                await _respond(send, 200, {"object": "list", "data": [row]})
            case _:
                error = {"message": "Unknown request URL", "type": "invalid_request_error", "param": None}
                await _respond(send, 404, {"error": {**error, "code": "unknown_url"}})

    async def chat(self, request: Mapping[str, Any], send: Send) -> None:
        """Answer one chat completion."""
        message = self.message(request)
        written = len(message["content"] or "") + len(json.dumps(message.get("tool_calls", "")))
        read = len(json.dumps([request["messages"], request.get("tools", [])]))
        usage = {"prompt_tokens": read // 4, "completion_tokens": max(1, written // 4)}
        usage["total_tokens"] = sum(usage.values())
        head = {"id": f"chatcmpl-demo{next(self._ids)}", "created": CREATED, "model": request["model"]}
        if request.get("stream"):
            asked = (request.get("stream_options") or {}).get("include_usage", False)
            await _stream(send, chunks(head, message, usage if asked else None))
            return
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish(message)}
        await _respond(send, 200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def message(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Calls where the last user message asks for some, and words where it does not, or for the rest of it."""
        text, answered = last_words(request["messages"])
        declared = [tool["function"]["name"] for tool in request.get("tools", ()) if tool.get("type") == "function"]
        calls = [] if answered else spoken_calls(text, declared)
        rows = [self.tool_call(call) for call in calls]
        words = f"It is done: {answered}." if answered else words_for(text)
        talk = not rows or wants_words(text)
        base: dict[str, Any] = {"role": "assistant", "content": words if talk else None, "refusal": None}
        return {**base, "tool_calls": rows} if rows else base

    def tool_call(self, call: Call) -> dict[str, Any]:
        """One entry of `tool_calls`."""
        name, arguments = call
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"id": f"call_demo{next(self._ids):020d}", "type": "function", "function": function}


def last_words(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """The text of the last user message, and of the tool result after it if there is one."""
    answered = messages[-1]["content"] if messages[-1]["role"] == "tool" else ""
    content = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
    if isinstance(content, list):
        content = " ".join(part["text"] for part in content if part["type"] == "text")
    return content, answered


def finish(message: Mapping[str, Any]) -> str:
    """`finish_reason`."""
    return "tool_calls" if message.get("tool_calls") else "stop"


def chunks(
    head: Mapping[str, Any], message: Mapping[str, Any], usage: Mapping[str, int] | None
) -> Iterator[dict[str, Any]]:
    """The chunks of a stream: role, words one by one, calls opened and filled, finish, and usage where asked for."""

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        extra = {"usage": None} if usage is not None else {}
        return {**head, "object": "chat.completion.chunk", "choices": [choice], **extra}

    yield chunk({"role": "assistant", "content": "" if message["content"] else None, "refusal": None})
    for word in (message["content"] or "").split(" ") if message["content"] else ():
        yield chunk({"content": word + " "})
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        yield chunk({"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]})
    yield chunk({}, finish(message))
    if usage is not None:
        yield {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}


async def _body(receive: Receive) -> bytes:
    pieces = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def _respond(send: Send, status: int, document: Mapping[str, Any]) -> None:
    body = json.dumps(document).encode()
    headers = [(b"content-type", JSON), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(send: Send, documents: Iterator[dict[str, Any]]) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for document in documents:
        event = f"data: {json.dumps(document)}\n\n".encode()
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
