"""Identifiers of tool calls that we mint, made so that they can be told from the upstream's later.

OpenAI refuses ids of more than 40 characters (`string_above_max_length`); a client sends ours back to the upstream with
the next turn, so they stay in the form `call_` + 24 of [A-Za-z0-9]. The first three of those mark them as ours: a
history whose assistant turns all carry the mark came from the engine and can be replayed to it.
"""

from __future__ import annotations

LOCAL_CALL_PREFIX = "call_ndl"
RANDOM_LENGTH = 21


def call_id(random_text: str) -> str:
    """A call id from `RANDOM_LENGTH` random characters of [A-Za-z0-9]."""
    if len(random_text) != RANDOM_LENGTH:
        raise ValueError(f"a call id takes {RANDOM_LENGTH} random characters, got {len(random_text)}")
    return LOCAL_CALL_PREFIX + random_text


def is_local_call_id(identifier: str) -> bool:
    """Whether a router made this id."""
    return identifier.startswith(LOCAL_CALL_PREFIX)
