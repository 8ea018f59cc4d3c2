"""What must not stand in a text for the engine: the markers of chat templates, and what C strings cannot hold."""

from __future__ import annotations

import re
import unicodedata

#: Chat-template markers of Needle and of the models that clients copy text from.
_MARKER = re.compile(
    r"<\s*\|\s*[a-z_]{2,24}\s*\|\s*>"
    r"|<\s*/?\s*(?:tool_calls?|tool_results?|tool_response|tools?|schema|function_calls?|think|reasoning|confidence)\s*>"
    r"|\[/?(?:INST|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\]",
    re.IGNORECASE,
)
_SUSPICIOUS = re.compile(r"[<\[\uff1c\ufe64\u2039\u27e8\u3008]")
#: Characters that show nothing and so can split a marker: format characters, soft hyphen, variation selectors.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_ANGLES = str.maketrans({"\u2039": "<", "\u203a": ">", "\u27e8": "<", "\u27e9": ">", "\u3008": "<", "\u3009": ">"})


def control_marker(text: str) -> bool:
    """Whether the text spells a chat-template marker, also in full-width letters or split by invisible characters."""
    if not _SUSPICIOUS.search(text):
        return False
    # ASCII has no disguises, and normalising megabytes takes a second.
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_ANGLES)
    return _MARKER.search(plain) is not None


def unreadable(text: str) -> bool:
    """Whether the text cannot be handed to C code: a NUL cuts it silently, a lone surrogate has no UTF-8."""
    if "\0" in text:
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
