"""An engine whose answers stand in a file: for tests of everything around an engine.

It is a library like any other and runs through the same process, pool and session. The file is a JSON object:

    envelopes   list; each completion returns the next, the last repeats. A string is the engine's raw output.
    raise       text; each completion fails with it
    delay_ms    number; how long each completion takes
    crash       true: a completion kills the process        crash_on_load   true: loading does
    hang        true: a completion never returns
    log         path; one JSON line for each init, reset and completion, with pid and thread
    delays      {"load_ms", "init_ms", "step_ms"}: how long each of these takes
    echo        true: the reasoning is "<first tool's name>|<text>"
    leak_mb     number; memory that each completion keeps
    noise       true: each completion prints to standard output, as native code may
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from needle_router.engine.session import LoadFailed, Refusal

SILENT: Mapping[str, Any] = {"type": "respond", "success": True, "function_calls": [], "confidence": 0.0}


class ScriptedLibrary:
    """Plays a script; `path` names the file."""

    remembers = True

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._script: Mapping[str, Any] = {}
        self._delays: Mapping[str, float] = {}
        self._answered = 0
        self._tools: list[Any] = []
        self._leak: list[bytes] = []

    def load(self) -> None:
        """Read the script."""
        self._script = read_script(self._path)
        self._delays = self._script.get("delays", {})
        self._sleep("load_ms")
        if self._script.get("crash_on_load"):
            die()

    def init(self, system: str, tools: str) -> None:
        """Start a session."""
        self._tools = orjson.loads(tools)
        self._log("init", system=system, tools=self._tools)
        self._sleep("init_ms")

    def reset(self) -> None:
        """Forget the texts fed."""
        self._log("reset")

    def complete(self, text: str, max_new_tokens: int) -> str | Mapping[str, Any]:
        """The next envelope, or the scripted misfortune."""
        del max_new_tokens
        self._log("complete", text=text)
        self._misbehave()
        time.sleep(self._script.get("delay_ms", 0) / 1000)
        self._sleep("step_ms")
        return self._next(text)

    def _misbehave(self) -> None:
        if self._script.get("noise"):
            os.write(1, b"scripted: the library speaks\n")
        if leak_mb := self._script.get("leak_mb"):
            # Written to, or the kernel would not give the pages out.
            self._leak.append(os.urandom(4096) * int(leak_mb * 256))
        if self._script.get("crash"):
            die()
        while self._script.get("hang"):
            time.sleep(3600)
        if message := self._script.get("raise"):
            raise Refusal("engine-error", str(message), lost=True)

    def _next(self, text: str) -> str | Mapping[str, Any]:
        envelopes = self._script.get("envelopes") or [SILENT]
        answer: str | Mapping[str, Any] = envelopes[min(self._answered, len(envelopes) - 1)]
        self._answered += 1
        if self._script.get("echo") and isinstance(answer, dict):
            return answer | {"reasoning": f"{self._tools[0]['name'] if self._tools else ''}|{text}"}
        return answer

    def _sleep(self, which: str) -> None:
        time.sleep(self._delays.get(which, 0) / 1000)

    def _log(self, op: str, **fields: Any) -> None:
        path = self._script.get("log")
        if not path:
            return
        entry = {"op": op, **fields, "pid": os.getpid(), "thread": threading.get_ident()}
        # One write in append mode: lines of several workers do not mix.
        with open(path, "ab", buffering=0) as log:
            log.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))


def read_script(path: Path) -> Mapping[str, Any]:
    """The script in a file; raises LoadFailed."""
    try:
        script = orjson.loads(path.read_bytes())
    except OSError as error:
        raise LoadFailed(f"engine.script {path} cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise LoadFailed(f"engine.script {path} is not JSON: {error}") from error
    if not isinstance(script, dict) or not isinstance(script.get("envelopes", []), list):
        raise LoadFailed(f"engine.script {path} is not an object with a list of envelopes")
    return script


def die() -> None:
    """End this process the way a fault in native code does: at once, with nothing said."""
    os.kill(os.getpid(), signal.SIGKILL)
