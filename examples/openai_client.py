"""The official client, pointed at the router: one call, one streamed answer, and which way each of them went.

    needle-router serve --upstream https://api.example.com/v1 --backend rust --model tiny
    OPENAI_BASE_URL=http://127.0.0.1:8088/v1 OPENAI_API_KEY=sk-... python examples/openai_client.py

Needs: pip install "openai>=3"
"""

from __future__ import annotations

import os

import openai
from openai.types.chat import ChatCompletionToolParam

MODEL = os.environ.get("MODEL", "gpt-4o-mini")
LIGHTS: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "set_lights",
        "description": "Turn a room's lights on or off",
        "parameters": {
            "type": "object",
            "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
            "required": ["room", "on"],
        },
    },
}


def ask(client: openai.OpenAI, text: str) -> None:
    """One request; `with_raw_response` shows the headers beside the parsed answer."""
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": text}], tools=[LIGHTS]
    )
    message = raw.parse().choices[0].message
    calls = [
        (call.function.name, call.function.arguments) for call in message.tool_calls or () if call.type == "function"
    ]
    print(f"{text!r}: {raw.headers.get('x-needle-route')} ({raw.headers.get('x-needle-reason')})")
    print(f"    calls {calls}, words {message.content!r}")


def stream(client: openai.OpenAI, text: str) -> None:
    """One streamed request."""
    print(f"{text!r}, streamed:")
    for chunk in client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": text}], tools=[LIGHTS], stream=True
    ):
        for choice in chunk.choices:
            print("   ", choice.delta.model_dump(exclude_none=True), choice.finish_reason or "")


def main() -> None:
    """Two questions and a stream."""
    client = openai.OpenAI(base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8088/v1"))
    ask(client, "turn on the kitchen lights")
    ask(client, "what is the capital of France?")
    stream(client, "turn off the office lights")


if __name__ == "__main__":
    main()
