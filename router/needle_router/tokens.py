"""How long is a prompt for the engine? Exact where the model's SentencePiece vocabulary is at hand, else an estimate.

The vocabulary stands in the `.cact` archive itself, or in a file beside it (`NAME.model`, `tokenizer.model`); it is
never fetched. A prompt is counted as the engine reads it, with the chat template around its parts. The estimate errs
towards longer, since what is cut off silently by the engine is worse than a call that was not tried.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from needle_router.cact import BadArchive, read_archive, sentencepiece_model

#: Characters of English and JSON per token of Needle's small vocabulary.
CHARS_PER_TOKEN = 3
#: Tokens of the chat template around a prompt: those that open it, and those of every step.
TEMPLATE_TOKENS, STEP_TOKENS = 12, 9
#: Tool sets that are no longer than this are counted once.
MAX_REMEMBERED_CHARS = 16_384


class TokenCounter(Protocol):
    """Counts tokens; `exact` is false for an estimate."""

    @property
    def exact(self) -> bool:
        """Whether the model's own vocabulary counts."""
        ...

    def count(self, text: str) -> int:
        """Tokens in `text`."""
        ...

    def prompt(self, system: str, tools: str, steps: Sequence[str]) -> int:
        """Tokens of everything that the engine reads: the template, facts, tools and the texts fed."""
        ...


class EstimateCounter:
    """One token per `CHARS_PER_TOKEN` bytes of UTF-8, rounded up."""

    exact = False

    def count(self, text: str) -> int:
        """Estimated tokens in `text`; 0 for the empty text."""
        return -(-len(text.encode("utf-8", "replace")) // CHARS_PER_TOKEN)

    def prompt(self, system: str, tools: str, steps: Sequence[str]) -> int:
        """Estimated tokens of the whole prompt."""
        texts = sum(map(self.count, (system, tools, *steps)))
        return texts + TEMPLATE_TOKENS + STEP_TOKENS * len(steps)


class SentencePieceCounter:
    """Counts with a SentencePiece model, which is loaded when the first text is counted.

    `load` gives the serialised model; where it or SentencePiece fails, the estimate counts and `exact` is false.
    `reads_system` is false for a model whose backend leaves the facts out.
    """

    def __init__(self, load: Callable[[], bytes], *, reads_system: bool = True) -> None:
        self._load = load
        self._reads_system = reads_system
        self._estimate = EstimateCounter()
        self._head = functools.lru_cache(maxsize=512)(self._count_head)

    @functools.cached_property
    def _processor(self) -> Any:
        try:
            # Costs 8 MB and 26 ms (measured): a router that only passes on never needs it.
            import sentencepiece

            return sentencepiece.SentencePieceProcessor(model_proto=self._load())
        except (OSError, RuntimeError, ImportError, BadArchive):
            return None

    @functools.cached_property
    def _prefix(self) -> int:
        """Tokens that the encoder puts before a marker at the beginning: the dummy blank of most vocabularies."""
        return int(self._processor.encode("a", out_type=str)[0].startswith("\u2581"))

    @property
    def exact(self) -> bool:
        """Whether the vocabulary could be loaded."""
        return self._processor is not None

    def count(self, text: str) -> int:
        """Tokens in `text`."""
        if self._processor is None:
            return self._estimate.count(text)
        return len(self._processor.encode(text.encode("utf-8", "replace").decode()))

    def prompt(self, system: str, tools: str, steps: Sequence[str]) -> int:
        """Tokens of the whole prompt. Of a replayed conversation, the engine's own words come on top."""
        if self._processor is None:
            return self._estimate.prompt(system, tools, steps)
        system = system if self._reads_system else ""
        short = len(system) + len(tools) <= MAX_REMEMBERED_CHARS
        head = (self._head if short else self._count_head)(system, tools)
        # The parts meet at markers, which are pieces of their own: so the counts of the parts add up.
        turns = (f"<|im_start|>user\n{step}" for step in steps[1:])
        texts = (f"</tools>\n{steps[0] if steps else ''}", *turns)
        return head + sum(self._continued(f"{text}<|im_end|>\n<|im_start|>assistant\n") for text in texts)

    def _count_head(self, system: str, tools: str) -> int:
        facts = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
        begin_of_sequence = 1
        return begin_of_sequence + self.count(f"{facts}<|im_start|>user\n<tools>{tools}")

    def _continued(self, text: str) -> int:
        """Tokens of a text that begins with a marker and does not stand at the beginning."""
        return self.count(text) - self._prefix


def tokenizer_file(model: Path | None) -> Path | None:
    """The tokenizer beside a model file, if there is one."""
    if model is None:
        return None
    beside = (model.with_suffix(".model"), model.parent / "tokenizer.model")
    return next((path for path in beside if path.is_file()), None)


def counter_for(model: Path | None, *, reads_system: bool = True) -> TokenCounter:
    """An exact counter where the vocabulary of `model` is at hand, else the estimate; loads nothing yet."""
    beside = tokenizer_file(model)
    if beside is not None:
        return SentencePieceCounter(beside.read_bytes, reads_system=reads_system)
    if model is None or not model.is_file():
        return EstimateCounter()
    return SentencePieceCounter(functools.partial(archived_tokenizer, model), reads_system=reads_system)


def archived_tokenizer(model: Path) -> bytes:
    """The vocabulary that an archive carries, as a SentencePiece model. Raises BadArchive and OSError."""
    vocabulary = read_archive(model).vocabulary
    if vocabulary is None:
        raise BadArchive(f"{model.name} carries no vocabulary")
    return sentencepiece_model(vocabulary)


def window_of(model: Path | None) -> int | None:
    """Tokens, prompt and answer together, that the model of an archive holds; None where nothing says so."""
    if model is None:
        return None
    try:
        # A header that says 0 says nothing.
        return read_archive(model).window or None
    except (OSError, BadArchive):
        return None
