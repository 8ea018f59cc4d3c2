"""After a tool's result, a fixed sentence per tool in place of the upstream's words.

For tools whose result says no more than that it was done. A reply is made only where every result at the end belongs to
a call with a template and reports no error; whatever is doubtful is the upstream's to put into words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from needle_policies.patterns import matches
from needle_policies.templates import filled
from needle_policies.types import Decision, Evidence, Features, Plan, Planned, Result, Situation

#: A longer result is not read; it has more to say than a fixed sentence.
MAX_RESULT_CHARS = 64 * 1024
#: Words of a result that is a text. A false alarm costs no more than asking the upstream.
_TROUBLE = re.compile(
    r"\b(?:errors?|exception|traceback|fail(?:ed|s|ure)?|denied|refused|unauthori[sz]ed|forbidden|invalid|unknown|missing"
    r"|time[ds]? ?out|unable|cannot|can't|could ?n[o']t|not|no)\b",
    re.IGNORECASE,
)
_TROUBLE_STATES = frozenset(("error", "failed", "failure", "fail", "denied", "timeout", "cancelled", "canceled"))


@dataclass(frozen=True, slots=True)
class Replies:
    """`templates` holds a sentence by tool name (`templates.filled`).

    A result is an error when it has a key of `error_keys` with anything but nothing in it, or a key of `success_keys`
    with nothing or false, or when its `status` or its text says so. Both lists are of patterns.
    """

    templates: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    error_keys: tuple[str, ...] = ("error", "errors", "exception", "isError", "is_error")
    success_keys: tuple[str, ...] = ("success", "ok")
    kind: str = "replies"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """REPLY with the sentences of all results, one a line, equal ones once."""
        if situation.mode != "on" or not features.results:
            return None
        said = [self.sentence(result) for result in features.results]
        texts = dict.fromkeys(text for text in said if text)
        return None if None in said or not texts else Planned(Plan.REPLY, "reply-template", self.kind, "\n".join(texts))

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """No opinion."""
        return None

    def sentence(self, result: Result) -> str | None:
        """The sentence for one result; None where there is none to say."""
        template = self.templates.get(result.name)
        arguments, found = decoded(result.arguments or "{}"), decoded(result.text)
        if template is None or not isinstance(arguments, dict) or self.is_error(found):
            return None
        return filled(template, arguments, found)

    def is_error(self, found: Any) -> bool:
        """Whether a decoded result reports that something went wrong."""
        if isinstance(found, str):
            return len(found) > MAX_RESULT_CHARS or _TROUBLE.search(found) is not None
        if not isinstance(found, dict):
            return found is False
        status = found.get("status")
        if isinstance(status, str) and status.strip().lower() in _TROUBLE_STATES:
            return True
        if isinstance(status, int) and status >= 400:
            return True
        return any(matches(key, self.error_keys) and bool(value) for key, value in found.items()) or any(
            matches(key, self.success_keys) and not value for key, value in found.items()
        )


def decoded(text: str) -> Any:
    """The JSON value of a text; the text itself where it is none, or too long to be read."""
    if len(text) > MAX_RESULT_CHARS:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
