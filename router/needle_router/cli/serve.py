"""`serve`: take the port, say what starts, and only then import and run what serves."""

from __future__ import annotations

import gc
import socket
import sys

from needle_router.cli.banner import banner, ledger_file
from needle_router.cli.exits import Exit
from needle_router.cli.listen import listen, url_of
from needle_router.cli.logs import set_up
from needle_router.cli.options import Settings, loaded
from needle_router.config.load import Loaded, load_config
from needle_router.config.schema import Config

#: New objects that may wait for the cycle collector; some hundred requests under way have fewer.
YOUNG_OBJECTS = 20_000


def serve(settings: Settings | None) -> Exit:
    """Serve until a signal ends it."""
    found = loaded(settings)
    sock = listen(found.config.server.host, found.config.server.port)
    set_up(found.config.server.log_level)
    announce(found, sock)
    from needle_router.cli.reload import Reloading
    from needle_router.cli.server import Server

    settle_collector()
    server = Server(Reloading(found.config, lambda: loaded_again(settings)), found.config)
    try:
        server.run(sockets=[sock])
    except SystemExit:
        # uvicorn leaves with 3 when the app's start-up fails; here that number means a port in use.
        return Exit.FAILED
    return Exit.OK if server.started else Exit.FAILED


def settle_collector() -> None:
    """Have the cycle collector look rarely, and never at what the imports made.

    A forwarded request leaves no cycles behind, so with Python's own thresholds a sixth of all CPU time went into
    looking for some among the requests that are still under way.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


def loaded_again(settings: Settings | None) -> Config:
    """The configuration as it stands now; raises `ConfigError`."""
    settings = settings or Settings()
    return load_config(settings.config, flags=settings.flags())


def announce(found: Loaded, sock: socket.socket) -> None:
    """The banner on stderr."""
    for line in banner(found.config, url=url_of(sock), file=found.path, ledger=ledger_file(found.config)):
        print(line, file=sys.stderr, flush=True)
