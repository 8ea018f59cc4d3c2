"""How long is a text for the engine? Exact where the model's SentencePiece tokenizer is at hand, else an estimate.

The tokenizer is looked for beside the model file (`NAME.model`, `tokenizer.model`); it is never fetched. The estimate
errs towards longer, since what is cut off silently by the engine is worse than a call that was not tried.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Protocol

#: Characters of English and JSON per token of Needle's small vocabulary.
CHARS_PER_TOKEN = 3


class TokenCounter(Protocol):
    """Counts tokens; `exact` is false for an estimate."""

    exact: bool

    def count(self, text: str) -> int:
        """Tokens in `text`."""
        ...


class EstimateCounter:
    """One token per `CHARS_PER_TOKEN` bytes of UTF-8, rounded up."""

    exact = False

    def count(self, text: str) -> int:
        """Estimated tokens in `text`; 0 for the empty text."""
        return -(-len(text.encode("utf-8", "replace")) // CHARS_PER_TOKEN)


class SentencePieceCounter:
    """Counts with a SentencePiece model file; repeated texts (tool sets) are remembered."""

    exact = True

    def __init__(self, model: Path) -> None:
        import sentencepiece

        self._processor: Any = sentencepiece.SentencePieceProcessor(model_file=str(model))
        self.count = functools.lru_cache(maxsize=1024)(self._count)  # type: ignore[method-assign]

    def _count(self, text: str) -> int:
        return len(self._processor.encode(text.encode("utf-8", "replace").decode()))

    def count(self, text: str) -> int:
        """Tokens in `text`; replaced by a remembering version when the model is loaded."""
        return self._count(text)


def tokenizer_file(model: Path | None) -> Path | None:
    """The tokenizer beside a model file, if there is one."""
    if model is None:
        return None
    beside = (model.with_suffix(".model"), model.parent / "tokenizer.model")
    return next((path for path in beside if path.is_file()), None)


def counter_for(model: Path | None) -> TokenCounter:
    """An exact counter where the tokenizer of `model` is at hand and loads, else the estimate."""
    found = tokenizer_file(model)
    if found is None:
        return EstimateCounter()
    try:
        return SentencePieceCounter(found)
    except (OSError, RuntimeError, ImportError):
        return EstimateCounter()
