"""Where a request goes: the one configured origin, with the client's own path and query, byte for byte.

The origin comes from the configuration only. A target that could mean another host, another path than it says, or two
requests is refused (RFC 9112 section 3.2; RFC 3986 sections 3.2 and 5.2.4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

from needle_router.errors import BadTarget

DEFAULT_PORTS = {"http": 80, "https": 443}
_PLAIN = re.compile(rb"/[A-Za-z0-9_~:.,=+-]+(?:/[A-Za-z0-9_~:=+-]+)*")
_FORBIDDEN = re.compile(rb"[\x00-\x20\x7f-\xff\\#]")
#: A query is opaque: servers neither split it into segments nor join it to a host.
_FORBIDDEN_IN_QUERY = re.compile(rb"[\x00-\x20\x7f#]")
_ENCODED = re.compile(rb"%(?:00|0a|0d|5c)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Origin:
    """An upstream: scheme http or https, host, port, and the path that comes before every target."""

    scheme: str
    host: str
    port: int
    prefix: bytes

    @property
    def host_header(self) -> bytes:
        """The `Host` field: with the port unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}").encode("ascii")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    @classmethod
    def parse(cls, base_url: str) -> Origin:
        """Read `upstream.base_url`; a trailing `/v1` is dropped, since clients' paths bring their own.

        Raises ValueError with a message that names the problem.
        """
        parts = urlsplit(base_url.strip())
        if parts.scheme not in DEFAULT_PORTS:
            raise ValueError(f"{base_url!r} does not begin with http:// or https://")
        if not parts.hostname:
            raise ValueError(f"{base_url!r} names no host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the URL holds a user name or password; put keys into upstream.api_key")
        if parts.query or parts.fragment:
            raise ValueError("the URL holds a query or a fragment")
        path = parts.path.rstrip("/")
        prefix = path.removesuffix("/v1")
        host = parts.hostname.encode("idna").decode() if not parts.hostname.isascii() else parts.hostname
        return cls(parts.scheme, host, parts.port or DEFAULT_PORTS[parts.scheme], prefix.encode("ascii"))


def upstream_target(origin: Origin, raw_path: bytes, query: bytes) -> bytes:
    """The request target for the upstream; raises `BadTarget` for one that must not be passed on."""
    check_target(raw_path, query)
    return origin.prefix + raw_path + (b"?" + query if query else b"")


def check_target(raw_path: bytes, query: bytes) -> None:
    """Raise `BadTarget` for a path or query that must not be passed on."""
    if not _PLAIN.fullmatch(raw_path) or b".." in raw_path or b"/." in raw_path:
        check(raw_path)
    if query and _FORBIDDEN_IN_QUERY.search(query):
        raise BadTarget("The query holds a character that a request target cannot have.")


def check(raw_path: bytes) -> None:
    """Raise `BadTarget` unless the path is plain: origin-form, no dot segments, no tricks with the authority."""
    if not raw_path.startswith(b"/"):
        raise BadTarget("The request target must begin with a slash (origin-form).")
    if raw_path.startswith((b"/@", b"/%40")) or b"//" in raw_path:
        raise BadTarget("The path could be read as another host.")
    if _FORBIDDEN.search(raw_path) or _ENCODED.search(raw_path):
        raise BadTarget("The path holds a character that a request target cannot have.")
    decoded = unquote_to_bytes(raw_path)
    if any(segment in (b".", b"..") for segment in decoded.split(b"/")):
        raise BadTarget("The path holds dot segments.")
