"""Whether a client takes what it is sent.

How much still waits says little: an app may add as fast as the client takes. So progress is counted in bytes that the
client's machine has acknowledged, where the system tells (Linux), else by any change in what waits.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

#: `tcpi_bytes_acked` in `struct tcp_info` (linux/tcp.h): 64 bits at this offset, since Linux 4.1.
_ACKED = struct.Struct("@120xQ")


class WriteWatch:
    """Looks at one connection now and then; times are seconds of the loop's clock."""

    __slots__ = ("_since", "_taken")

    def __init__(self, now: float) -> None:
        self._taken = 0
        self._since = now

    def stalls(self, transport: asyncio.Transport, now: float, allowed_s: float) -> bool:
        """Whether there is something to take and nothing of it was taken for longer than allowed."""
        waiting = transport.get_write_buffer_size()
        taken = taken_bytes(transport.get_extra_info("socket"), waiting) if waiting else 0
        if not waiting or taken != self._taken:
            self._taken, self._since = taken, now
            return False
        return now - self._since > allowed_s


def taken_bytes(sock: Any, waiting: int) -> int:
    """A number that changes when the other side takes something."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None or sock is None:
        return waiting
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, option, _ACKED.size)
    except OSError:
        return waiting
    return int(_ACKED.unpack(info)[0]) if len(info) == _ACKED.size else waiting
