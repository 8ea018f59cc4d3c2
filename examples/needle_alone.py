"""No upstream, no server, no network: Needle behind the chat completions API inside one process.

python examples/needle_alone.py "turn on the kitchen lights"
"""

from __future__ import annotations

import asyncio
import json
import sys

import httpx

from needle_router import create_app, load_config

BODY = {
    "model": "tiny-needle",
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "set_timer",
                "description": "Start a countdown timer",
                "parameters": {
                    "type": "object",
                    "properties": {"minutes": {"type": "integer"}},
                    "required": ["minutes"],
                },
            },
        }
    ],
}
ALONE = {"engine.backend": "rust", "engine.model": "tiny", "upstream.base_url": "", "ledger.path": "off"}


async def ready(client: httpx.AsyncClient, *, patience_s: float = 30) -> None:
    """Wait until the engine behind the app is loaded."""
    async with asyncio.timeout(patience_s):
        while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110  # asked as a probe asks
            await asyncio.sleep(0.05)


async def main(text: str) -> None:
    """Ask once and print the whole answer."""
    router = create_app(load_config(flags=ALONE))
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(router), base_url="http://needle") as client:
            await ready(client)
            message = {"role": "user", "content": text}
            response = await client.post("/v1/chat/completions", json={**BODY, "messages": [message]})
            print(json.dumps(response.json(), indent=2))
    finally:
        await router.stop()


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "set a timer for 12 minutes"))
