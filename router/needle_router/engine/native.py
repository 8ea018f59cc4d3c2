"""The vendor's engine: the cactus-needle package, generations 2 and 3.

What that package does by itself and must not do here: default to generation 3, write the minute into the system text
(which breaks session reuse), send telemetry, ask the model hub at each start, and fetch a native library without a
hash. So the generation is always passed, the date is not its business, the environment is set before the import, and a
library that is not on this machine is a failed load, never a download.

The output buffer is filled and cut without a word: an answer that fills it exactly counts as cut.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, MutableMapping
from typing import Any

from needle_router.engine.archives import NativeFiles, cactus_cache, generation_of, native_files
from needle_router.engine.environ import FIXED
from needle_router.engine.pins import check_pins
from needle_router.engine.session import LoadFailed, Refusal

UNPARSEABLE = "engine returned an unparseable envelope"


class NativeLibrary:
    """`model` is needle-2, needle-3 or the path of a tuned `.cact`; tuned weights may carry no confidence (None)."""

    remembers = True

    def __init__(
        self,
        model: str,
        *,
        buffer_bytes: int = 1 << 20,
        tool_index: str = "",
        environ: MutableMapping[str, str] | None = None,
    ) -> None:
        self._model = model
        self._tool_index = tool_index
        self._buffer_bytes = buffer_bytes
        self._environ = os.environ if environ is None else environ
        self._files: NativeFiles | None = None
        self._agent: Any = None

    def load(self) -> None:
        """Import the package, find the files and load them. Raises LoadFailed."""
        # Before the import: the package and the library read these once.
        self._environ.update(FIXED)
        # Both warnings (no confidence head, many turns without a reset) tell of things that are meant here.
        warnings.filterwarnings("ignore", module="needle")
        try:
            from needle.agent import fetch
        except ImportError as error:
            raise LoadFailed(f"the package cactus-needle cannot be imported: {error}") from error
        self._files = find_files(self._model, self._environ, fetch)
        # As late as can be: between this look and the loading, nobody should have the time to swap the file.
        check_pins(filter(None, (self._files.library, self._files.base)), cactus_cache(self._environ))
        try:
            self._agent = self._new_agent("", "[]")
        except (OSError, RuntimeError, ValueError) as error:
            raise LoadFailed(f"{self._files.library} does not load: {error}") from error

    def init(self, system: str, tools: str) -> None:
        """Start a session. Two agents in one process would re-init each other, so the old one goes first."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None
        try:
            self._agent = self._new_agent(system, tools)
        except (OSError, RuntimeError, ValueError) as error:
            raise Refusal("engine-error", str(error), lost=True) from error

    def reset(self) -> None:
        """Forget the texts fed."""
        try:
            self._agent.reset()
        except RuntimeError as error:
            raise Refusal("engine-error", str(error), lost=True) from error

    def complete(self, text: str, max_new_tokens: int) -> Mapping[str, Any]:
        """Feed one text."""
        try:
            answer = self._agent.complete(text, max_new_tokens=max_new_tokens)
        except UnicodeDecodeError as error:
            # The reasoning may hold a cut UTF-8 sequence: an outcome, not a crash.
            raise self._cut() or Refusal("engine-garbage", f"the output is not UTF-8: {error.reason}") from error
        except RuntimeError as error:
            raise self._explain(str(error)) from error
        except (AttributeError, KeyError, TypeError) as error:
            # The package reads the envelope without checks; an odd one trips it.
            raise Refusal("engine-garbage", f"the envelope is malformed: {error}") from error
        if cut := self._cut():
            raise cut
        return as_object(answer)

    def _new_agent(self, system: str, tools: str) -> Any:
        import needle

        assert self._files is not None
        return needle.Needle(
            tools=tools,
            system=system,
            weights=self._files.weights,
            tool_index_path=self._tool_index or None,
            buffer_size=self._buffer_bytes,
            auto_date=False,
            generation=self._files.generation,
        )

    def _explain(self, message: str) -> Refusal:
        if message.startswith(UNPARSEABLE):
            return self._cut() or Refusal("engine-garbage", message)
        return Refusal("engine-error", message, lost=True)

    def _cut(self) -> Refusal | None:
        """A refusal when the last output filled the buffer. Tuned weights run behind another pipe and never show."""
        buffer = getattr(self._agent, "_buffer", None)
        if buffer is None or len(buffer.value) < len(buffer) - 1:
            return None
        return Refusal("truncated", f"the output fills the buffer of {len(buffer)} bytes (engine.buffer_bytes)")


def find_files(model: str, environ: Mapping[str, str], fetch: Any) -> NativeFiles:
    """The files of `model`, at the places where the cactus-needle package keeps them."""
    generation = generation_of(model)
    cache = cactus_cache(environ) / f"v{generation}" / fetch.engine_version(generation)
    return native_files(model, environ, cache=cache, library_name=fetch.lib_name(generation))


def as_object(answer: Any) -> Mapping[str, Any]:
    """The package returns whatever JSON the engine wrote."""
    if not isinstance(answer, dict):
        raise Refusal("engine-garbage", f"JSON, but a {type(answer).__name__} instead of an object")
    return answer
