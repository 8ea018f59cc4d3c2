"""An app of your own that speaks the chat completions API, with the router inside it.

    uvicorn --app-dir examples fastapi_middleware:app

The app answers what the router does not. Configuration comes from the usual file and environment; here it is given, so
that the demo model runs.

Needs: pip install fastapi
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request

from needle_router import NeedleRouter, load_config

SETTINGS = {
    "engine.backend": "rust",
    "engine.model": "tiny",
    "ledger.path": "off",
    # The demo model's scores lie around 0.8.
    "policy": [{"kind": "guards"}, {"kind": "threshold", "minimum": 0.75}],
}
app = FastAPI()
app.add_middleware(NeedleRouter, config=load_config(flags=SETTINGS, embedded=True))


@app.post("/v1/chat/completions")
async def answer(request: Request) -> dict[str, Any]:
    """What stands behind the router: here a canned voice, in your app your model."""
    body = await request.json()
    message = {"role": "assistant", "content": "This answer is the app's own."}
    return {
        "id": "chatcmpl-app",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
