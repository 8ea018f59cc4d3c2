"""One record per request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from needle_router.turn import Call, Usage

#: What can come of an audit: compared; an answer that is not whole or cannot be read; none (an error, or too late);
#: never asked.
AUDITS = ("compared", "unread", "failed", "timeout", "dropped")
#: From this status on an answer is an error.
FAILED = 400
#: Those that cost nothing, as far as anybody knows.
UNPAID_AUDITS = ("", "failed", "dropped")


#: What is kept of a name that a client made up, and of a list of them: more than any API takes, and never a whole body.
MAX_NAME_CHARS = 200
MAX_NAMES = 128


def kept_name(name: str) -> str:
    """The name, or its beginning and an ellipsis where it is too long to be kept: it then is no other's name."""
    return name if len(name) <= MAX_NAME_CHARS else name[: MAX_NAME_CHARS - 1] + "…"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What happened to one request. Times are seconds, money USD; nothing here holds text of a request or an answer.

    Names of models and of tools offered are bounded (`kept_name`, `MAX_NAMES`), whatever a client sends.
    `chat` is false for requests that were passed on unread. `usage` is what the upstream reported, None when unknown or
    not asked; `saved` is what a local answer kept from it, priced as the upstream would have. `raced` says that the
    upstream was asked beside the engine, `wasted` what it was then asked for in vain, estimated, None for nothing.
    `audit` is "" or one of `AUDITS`; `audit_usage` is what the upstream reported of it.
    `content` is empty unless the operator asked for it (`ledger.content`): see `content_of`. `risks` is what the
    schemas of the called tools declare of themselves. `answerable` says that the engine's calls were answered here, or
    would have been had they not only been watched.
    """

    time_s: float
    route: str
    reason: str
    policy: str = ""
    mode: str = "on"
    chat: bool = True
    model: str = ""
    stream: bool = False
    status: int = 0
    tools_offered: tuple[str, ...] = ()
    tools_called: tuple[str, ...] = ()
    confidence: float | None = None
    failures: tuple[str, ...] = ()
    uncovered: bool = False
    fingerprint: str = ""
    risks: tuple[str, ...] = ()
    overhead_s: float = 0.0
    engine_s: float = 0.0
    queue_s: float = 0.0
    total_s: float = 0.0
    usage: Usage | None = None
    cost_usd: float | None = None
    saved: Usage | None = None
    saved_usd: float | None = None
    raced: bool = False
    wasted: Usage | None = None
    wasted_usd: float | None = None
    audit: str = ""
    audit_usage: Usage | None = None
    audit_usd: float | None = None
    comparison: str = ""
    answerable: bool = False
    error: str = ""
    reinitialized: bool = False
    engine_ran: bool = False
    content: str = ""

    @property
    def cost_unknown(self) -> bool:
        """Whether the upstream was asked and nobody knows what it took: an answer that was cut is billed too.

        Errors cost nothing, what was passed on unread was not looked at, and what was begun in vain is `wasted`.
        """
        asked = self.route != "local" and self.chat and self.status < FAILED and self.wasted is None
        return asked and self.cost_usd is None

    @property
    def spent_usd(self) -> float:
        """All that the upstream took for this request, as far as it is known."""
        return (self.cost_usd or 0.0) + (self.wasted_usd or 0.0) + (self.audit_usd or 0.0)


#: What may be a credential: key prefixes of providers, bearer tokens, and long runs of letters and digits mixed.
_SECRET = re.compile(
    r"(?i)\b(?:bearer\s+\S+|(?:sk|rk|pk|hf|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{6,})|\b(?=\w*\d)(?=\w*[A-Za-z])\w{24,}\b"
)
MAX_CONTENT_CHARS = 4000


def content_of(user_text: str, calls: Sequence[Call]) -> str:
    """The text that the ledger keeps on request: the user's last message and the engine's calls, as JSON."""
    made = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
    kept = _redacted({"user": user_text[:MAX_CONTENT_CHARS], "calls": made})
    return json.dumps(kept, ensure_ascii=True, default=str)


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRET.sub("[redacted]", value)
    if isinstance(value, Mapping):
        return {str(key): _redacted(item) for key, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value
