"""Who may use a router that asks for no key: programs on this machine, and not the pages a browser happens to show.

A page can make a browser send requests to 127.0.0.1, and with a name that is rebound to that address it can even read
the answers. Browsers tell on themselves: requests that a page makes carry its `Origin` (Fetch standard, section 3.2),
and a rebound name stands in `Host`. Where a key is required neither helps a page, so nothing is checked there.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from needle_router.errors import Forbidden
from needle_router.observe import Header, header_value

LOCAL_NAMES = frozenset(("localhost", "localhost.localdomain"))


def is_local(host: str) -> bool:
    """Whether a host name or address means this machine."""
    name = host.strip("[]").lower().rstrip(".")
    if name in LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(value: str) -> str:
    """The host of a `Host` field or of an origin, without port; "" when there is none ("null", junk)."""
    try:
        return urlsplit(value if "://" in value else f"//{value}").hostname or ""
    except ValueError:
        return ""


def check_origin(headers: Sequence[Header], allowed: Sequence[str]) -> None:
    """Raise `Forbidden` for a request that a page of elsewhere makes."""
    origin = header_value(headers, b"origin")
    if origin and origin not in allowed and not is_local(host_of(origin)):
        raise Forbidden(
            "Pages of other sites may not use this router: set server.api_keys, or list the page's origin in "
            "server.allowed_origins."
        )


def check_host(headers: Sequence[Header], allowed: Sequence[str]) -> None:
    """Raise `Forbidden` when the router's own endpoints are asked for under a name that is not this machine's."""
    host = host_of(header_value(headers, b"host"))
    if host and host not in allowed and not is_local(host):
        raise Forbidden(
            "The router's own endpoints are for this machine: set server.api_keys, or list the host in "
            "server.allowed_hosts."
        )


def password_of(authorization: str) -> str:
    """The password of an `Authorization: Basic` field (RFC 7617), whatever the user's name; "" where there is none."""
    kind, _, given = authorization.partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(given.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
