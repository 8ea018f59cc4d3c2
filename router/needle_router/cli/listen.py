"""The listening socket, taken before anything slow: clients that connect meanwhile wait in its backlog."""

from __future__ import annotations

import errno
import socket

from needle_router.cli.exits import Exit, Stop

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; stops with exit code 3 when the port is taken, 2 when the address is not ours."""
    host = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise Stop(Exit.USAGE, f"server.host: {host} is no address of this machine ({error.strerror})") from None
    # With the protocol named, asyncio sets TCP_NODELAY on accepted connections; without it, each answer that is written
    # in two pieces waits 40 ms for the client's delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _stop(error, host, port) from None
    sock.setblocking(False)
    sock.set_inheritable(False)  # an engine process must not keep the port open
    return sock


def _stop(error: OSError, host: str, port: int) -> Stop:
    match error.errno:
        case errno.EADDRINUSE:
            return Stop(
                Exit.PORT_IN_USE,
                f"port {port} on {host} is in use; choose another with --port, or stop what listens there",
            )
        case errno.EADDRNOTAVAIL:
            return Stop(Exit.USAGE, f"server.host: {host} is no address of this machine")
        case errno.EACCES:
            return Stop(Exit.USAGE, f"server.port: this user may not listen on port {port}; take one above 1023")
        case _:
            return Stop(Exit.FAILED, f"cannot listen on {host}:{port}: {error.strerror or error}")


def address_of(sock: socket.socket) -> tuple[str, int]:
    """Host and port that a socket is bound to."""
    host, port = sock.getsockname()[:2]
    return host, port


def url_of(sock: socket.socket, *, as_seen_from_here: bool = True) -> str:
    """`http://host:port`; an unspecified address is shown as loopback, which is where a client here would go."""
    host, port = address_of(sock)
    if as_seen_from_here:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
