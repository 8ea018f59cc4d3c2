"""How tools have done: the trials of the canary, fed by every comparison, kept over restarts.

standings  the trials themselves, asked for each request
statefile  one file, one writer, whole or not at all
resets     alarms that an operator takes back
"""

from needle_router.standings.standings import Group, Standings
from needle_router.standings.statefile import StateFile

__all__ = ["Group", "Standings", "StateFile"]
