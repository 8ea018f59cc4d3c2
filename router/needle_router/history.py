"""What of a conversation can be fed to the engine again.

Inputs only: user texts, and each run of tool results as one JSON array. The engine writes its own side anew, so the
conversation that it rebuilds is the client's only where every assistant turn in it was the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson

from needle_router.turn import Message, Turn


def replayable_steps(turn: Turn, from_engine: Callable[[str], bool]) -> tuple[str, ...] | None:
    """The texts that rebuild this conversation in the engine, or None when it would not be the same conversation.

    The engine writes its own side again, so every assistant turn in the history must have been its own: calls only,
    and each with an id that was minted here.
    """
    for message in turn.messages:
        if message.role == "assistant":
            if message.text or not message.calls:
                return None
            if not all(from_engine(call.id) for call in message.calls):
                return None
    steps = _steps(turn.messages)
    return steps or None


def may_go_on(turn: Turn, from_engine: Callable[[str], bool]) -> bool:
    """Whether the engine could make its next call after the tool results at the end of this conversation.

    It must be the engine's own conversation, and every call in it must have its result, or it would go on from
    something that never happened.
    """
    if not turn.has_tools or replayable_steps(turn, from_engine) is None:
        return False
    open_calls: list[str] = []
    for message in turn.messages:
        if message.role == "tool" and message.tool_call_id in open_calls:
            open_calls.remove(message.tool_call_id)
        elif message.role == "tool" or (open_calls and message.role in ("user", "assistant")):
            return False
        open_calls += [call.id for call in message.calls]
    return not open_calls


def differs(turn: Turn, said: Sequence[Sequence[str]]) -> bool:
    """Whether an engine that was fed this conversation again made other calls than the conversation tells of.

    `said` are the names of its calls after each text fed before the last one. A text that no call followed, because
    the client went on at once, tells nothing.
    """
    told = _calls_after_steps(turn.messages)[:-1]
    pairs = zip(told[len(told) - len(said) :], said, strict=True) if len(said) <= len(told) else ()
    return any(names and names != tuple(made) for names, made in pairs)


def _calls_after_steps(messages: Sequence[Message]) -> list[tuple[str, ...]]:
    """For each text that a replay feeds, the names of the calls that followed it."""
    found: list[tuple[str, ...]] = []
    previous = ""
    for message in messages:
        tool = message.role in ("tool", "function")
        if message.role == "user" or (tool and previous not in ("tool", "function")):
            found.append(())
        elif message.role == "assistant" and found:
            found[-1] += tuple(call.name for call in message.calls)
        previous = message.role
    return found


def since_the_user(turn: Turn) -> Sequence[Message]:
    """What followed the last user message: calls and their results, in an agent's loop."""
    last = max((i for i, message in enumerate(turn.messages) if message.role == "user"), default=-1)
    return turn.messages[last + 1 :]


def results_since_the_user(turn: Turn) -> str:
    """The tool results that followed the last user message, one a line; "" without any."""
    return "\n".join(message.text for message in since_the_user(turn) if message.role == "tool")


def conversation_steps(turn: Turn, from_engine: Callable[[str], bool]) -> tuple[str, ...]:
    """The steps of the whole conversation where it can be replayed, else those since the last user message."""
    whole = replayable_steps(turn, from_engine)
    if whole is not None:
        return whole
    last = max((i for i, message in enumerate(turn.messages) if message.role == "user"), default=0)
    return _steps(turn.messages[last:]) or (turn.user_text,)


def _steps(messages: Sequence[Message]) -> tuple[str, ...]:
    """User texts, and each run of consecutive tool messages as one JSON array."""
    steps: list[str] = []
    results: list[str] = []
    for message in messages:
        if message.role in ("tool", "function"):
            results.append(message.text)
            continue
        if results:
            steps.append(_results_text(results))
            results = []
        if message.role == "user":
            steps.append(message.text)
    if results:
        steps.append(_results_text(results))
    return tuple(steps)


def _results_text(results: Sequence[str]) -> str:
    values = []
    for text in results:
        try:
            values.append(orjson.loads(text))
        except (orjson.JSONDecodeError, ValueError):
            values.append(text)
    return orjson.dumps(values).decode()
