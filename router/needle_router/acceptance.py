"""How often the engine's answers for a set of tools were used of late; what the adaptive gate goes by."""

from __future__ import annotations

from collections import OrderedDict, deque

#: Answers that count per set of tools: enough for a share of some per cent, few enough to follow a change.
WINDOW = 200
#: Sets that are remembered; the one that was asked about longest ago is forgotten first.
SETS = 512


class Acceptance:
    """The last `WINDOW` answers of each of the last `SETS` sets of tools."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, ...], deque[bool]] = OrderedDict()

    def note(self, tools: tuple[str, ...], *, used: bool) -> None:
        """An answer of the engine for these tools was judged."""
        recent = self._recent.setdefault(tools, deque(maxlen=WINDOW))
        self._recent.move_to_end(tools)
        recent.append(used)
        if len(self._recent) > SETS:
            self._recent.popitem(last=False)

    def of(self, tools: tuple[str, ...]) -> tuple[float | None, int]:
        """The share that was used, None when there is none to go by, and how many answers it rests on."""
        recent = self._recent.get(tools)
        return (sum(recent) / len(recent), len(recent)) if recent else (None, 0)
