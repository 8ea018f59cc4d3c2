"""Header fields on their way through: end-to-end ones pass as they are, hop-by-hop ones stay here (RFC 9110, 7.6.1).

Fields are (name, value) pairs of bytes in their order; repeated ones stay repeated, values keep every byte.
"""

from __future__ import annotations

from collections.abc import Iterable

from needle_router.errors import BadRequest

Header = tuple[bytes, bytes]
HOP_BY_HOP = frozenset(
    (
        b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
        b"upgrade"
    ).split()
)
#: Answered or replaced on this hop, beside the hop-by-hop ones.
NOT_FORWARDED = HOP_BY_HOP | {b"host", b"expect"}
NEEDLE = b"x-needle-"
PSEUDONYM = b"needle-router-"
KEY_FIELDS = frozenset((b"authorization", b"api-key", b"x-api-key"))


def connection_options(headers: Iterable[Header]) -> set[bytes]:
    """The field names that `Connection` lists: they end here too."""
    return {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }


def request_headers(headers: list[Header], *, host: bytes, via: bytes, key: str = "") -> list[Header]:
    """The fields for the upstream. `via` is our own entry; `key`, where given, replaces the client's credentials.

    Raises `BadRequest` for a request that two servers could read as two different ones (RFC 9112 section 6.1).
    """
    listed = connection_options(headers)
    kept: list[Header] = [(b"host", host)]
    vias = []
    lengths = []
    chunked = False
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"content-length":
            lengths.append(value)
            continue
        chunked = chunked or lowered == b"transfer-encoding"
        if lowered in NOT_FORWARDED or lowered in listed or lowered.startswith(NEEDLE):
            continue
        if lowered == b"via":
            vias.append(value)
        elif not (key and lowered in KEY_FIELDS):
            kept.append((name, value))
    if lengths:
        if chunked or len(set(lengths)) > 1 or not lengths[0].isdigit():
            raise BadRequest("The request states its length in more than one way.")
        kept.append((b"content-length", lengths[0]))
    if key:
        kept.append((b"authorization", b"Bearer " + key.encode()))
    kept.append((b"via", b", ".join((*vias, b"1.1 " + via))))
    return kept


def response_headers(headers: Iterable[Header]) -> list[Header]:
    """The fields for the client."""
    pairs = list(headers)
    listed = connection_options(pairs)
    return [
        (name, value)
        for name, value in pairs
        if (lowered := name.lower()) not in HOP_BY_HOP and lowered not in listed and not lowered.startswith(NEEDLE)
    ]


def passed_before(headers: Iterable[Header], via: bytes) -> bool:
    """Whether the request has been through this very router (RFC 9110 section 7.6.3)."""
    return any(name.lower() == b"via" and via in value for name, value in headers)


def is_event_stream(headers: Iterable[Header]) -> bool:
    """Whether an answer is an event stream into which an event can be written: one that is not encoded."""
    fields = [(name.lower(), value.strip().lower()) for name, value in headers]
    encoded = any(name == b"content-encoding" and value != b"identity" for name, value in fields)
    return not encoded and any(
        name == b"content-type" and value.startswith(b"text/event-stream") for name, value in fields
    )
