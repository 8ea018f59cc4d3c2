"""The tool results that a request ends in, where a fixed sentence could answer it: nothing but words is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from needle_policies import Result
from needle_router.evidence.intents import wishes
from needle_router.history import since_the_user
from needle_router.turn import Choice, Format, Message, PastCall, Turn

RESULT_TURN = ("tool-result-turn",)


def results_of(turn: Turn) -> tuple[Result, ...]:
    """The results at the end, in order; () where the request asks for anything special, or not all calls are answered.

    A wish that no call was made for is left to the upstream, which would have made it now.
    """
    plain = turn.response_format.kind is Format.TEXT and turn.tool_choice.mode in (Choice.AUTO, Choice.NONE)
    if turn.obstacles != RESULT_TURN or not plain:
        return ()
    calls, results = _end(turn.messages)
    made = [call for message in since_the_user(turn) for call in message.calls]
    if not turn.user_text.strip() or wishes(turn.user_text) > len(made):
        return ()
    known = {call.id: call for call in calls if call.id and call.name}
    answered = [message.tool_call_id for message in results]
    if len(known) < len(calls) or sorted(map(str, answered)) != sorted(known):
        return ()
    return tuple(
        Result(known[str(message.tool_call_id)].name, known[str(message.tool_call_id)].arguments, message.text)
        for message in results
    )


def _end(messages: Sequence[Message]) -> tuple[tuple[PastCall, ...], Sequence[Message]]:
    """The calls of the last assistant message and the messages after it, if these are plain results and no more."""
    last = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=None)
    if last is None:
        return (), ()
    after = messages[last + 1 :]
    plain = all(message.role == "tool" and not message.media for message in after)
    return (messages[last].calls, after) if plain else ((), ())
