"""What makes the head of a request one that is not served: pure rules over what the parser found.

A request must be readable in one way only (RFC 9112, sections 3 and 6), and its head must stay within the limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from needle_router.cli.strict_gate import Gate
from needle_router.errors import BadRequest, BadTarget, HeadTooLarge, RouterError, TargetTooLong

VERSIONS = ("1.0", "1.1")
#: Fields with a rule of their own.
RULED = frozenset((b"host", b"transfer-encoding", b"content-length"))
#: The colon, the blank and the line end of a field.
FIELD_OVERHEAD = 4


@dataclass(slots=True)
class Head:
    """A head as it stood on the wire; names of fields are in lower case. `upgrade` says whether it asks for one."""

    url: bytes
    fields: Sequence[tuple[bytes, bytes]]
    version: str
    upgrade: bool


def fault(head: Head, gate: Gate) -> RouterError | None:
    """What is wrong with a head, None where it can be served."""
    if len(head.url) > gate.max_url_bytes:
        return target_too_long(gate)
    size = len(head.url)
    ruled: dict[bytes, list[bytes]] = {}
    for name, value in head.fields:
        size += len(name) + len(value) + FIELD_OVERHEAD
        if name in RULED:
            ruled.setdefault(name, []).append(value)
    if size > gate.max_head_bytes:
        return head_too_large(gate)
    if len(head.fields) > gate.limits.max_headers:
        count, limit = len(head.fields), gate.limits.max_headers
        return HeadTooLarge(f"The request has {count} header fields; {limit} are allowed (server.max_headers).")
    # Of a fragment, which no client sends, nothing would be left for the app to see.
    if not head.url.startswith(b"/") or b"#" in head.url:
        return BadTarget("Only targets in origin-form, a path that begins with a slash and a query, are served.")
    return _ambiguity(head, ruled)


def _ambiguity(head: Head, ruled: dict[bytes, list[bytes]]) -> RouterError | None:
    """Which rule of RFC 9112 the message breaks that others might read over."""
    version = head.version
    if version not in VERSIONS:
        return BadRequest(f"This is HTTP/{version}; HTTP/1.1 and HTTP/1.0 are served here.")
    hosts = len(ruled.get(b"host", ()))
    # Section 3.2: exactly one, and none only before HTTP/1.1.
    if hosts > 1 or (hosts == 0 and version != "1.0"):
        return BadRequest("The request needs exactly one Host.")
    codings = ruled.get(b"transfer-encoding")
    # Section 6.1: other codings may be refused, and HTTP/1.0 has none.
    if codings and (version == "1.0" or [coding.strip().lower() for coding in codings] != [b"chunked"]):
        return BadRequest("The only Transfer-Encoding that is read is one `chunked`, in HTTP/1.1.")
    # httptools would end such a message before its body.
    if head.upgrade and (codings or ruled.get(b"content-length", [b"0"]) != [b"0"]):
        return BadRequest("A request with Upgrade cannot have a body here.")
    return None


def target_too_long(gate: Gate) -> RouterError:
    """The refusal of a target beyond its limit."""
    kb = gate.limits.max_url_kb
    return TargetTooLong(f"The request target is longer than {kb:g} KB, the most that is read (server.max_url_kb).")


def head_too_large(gate: Gate) -> RouterError:
    """The refusal of fields, trailers or chunk extensions beyond their limit."""
    kb = gate.limits.max_header_kb
    return HeadTooLarge(f"The header fields are larger than {kb:g} KB, the most that is read (server.max_header_kb).")
