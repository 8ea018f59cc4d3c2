"""The engine process: one thread that owns library, weights and session, and a pipe to the router.

Why a process: the library has one global session, cannot be interrupted, and takes everything down when it crashes.
Here that costs one worker. The process ends by itself when its pipe does, so it never outlives the router; it ignores
the signals of a terminal or a service manager, so that the router can drain.

Started as `worker.main()` with its pipe as standard input and output (see `child.py`).
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from needle_router.engine.frames import FrameError, encode, read_frames, write_frame
from needle_router.engine.messages import Setup, refusal_message, reply_message, task_of
from needle_router.engine.session import Library, LoadFailed, Refusal, Session

#: The router sends one task at a time, after the setup.
INBOX_LIMIT = 4
#: linux/prctl.h
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the router's end of the pipe closes."""
    ignore_signals()
    pipe_in, pipe_out = claim_pipe()
    die_with_parent()
    inbox: queue.Queue[dict[str, Any]] = queue.Queue(INBOX_LIMIT)
    threading.Thread(target=_receive, args=(pipe_in, inbox), daemon=True).start()
    session = Session(library_for(Setup.of(inbox.get())))
    try:
        session.load()
    except LoadFailed as error:
        _say(pipe_out, {"kind": "failed", "detail": str(error)})
        return
    _say(pipe_out, {"kind": "ready", "rss_bytes": rss_bytes()})
    while True:
        _say(pipe_out, answer(session, inbox.get()))


def library_for(setup: Setup) -> Library:
    """The backend that a setup names; each is imported only where it is used."""
    if setup.backend == "rust":
        from needle_router.engine.rust import RustLibrary

        return RustLibrary(setup.model)
    if setup.backend == "native":
        from needle_router.engine.native import NativeLibrary

        return NativeLibrary(setup.model, buffer_bytes=setup.buffer_bytes, tool_index=setup.tool_index)
    from needle_router.engine.scripted import ScriptedLibrary

    return ScriptedLibrary(setup.script)


def answer(session: Session, message: Mapping[str, Any]) -> dict[str, Any]:
    """Run one task; whatever happens becomes a message."""
    number, started = message["id"], time.perf_counter()
    try:
        return reply_message(number, session.run(task_of(message)), rss_bytes())
    except Refusal as refusal:
        return refusal_message(number, refusal, time.perf_counter() - started, rss_bytes())


def _say(pipe: int, message: Mapping[str, Any]) -> None:
    try:
        frame = encode(message)
    except FrameError as error:
        # An envelope may hold what JSON cannot: integers beyond 64 bits, lone surrogates, a nest too deep.
        refusal = Refusal("engine-garbage", f"the envelope cannot be passed on: {error}")
        frame = encode(refusal_message(message["id"], refusal, 0.0, rss_bytes()))
    try:
        write_frame(pipe, frame)
    except OSError:
        _leave()


def _receive(pipe: int, inbox: queue.Queue[dict[str, Any]]) -> None:
    """Read in a thread of its own: the end of the pipe must be seen even while the library computes."""
    try:
        for message in read_frames(pipe):
            inbox.put(message)
    except (OSError, FrameError):
        pass
    _leave()


def _leave() -> NoReturn:
    # No clean-up: the owner thread may be inside the library, for ever.
    os._exit(0)


def claim_pipe() -> tuple[int, int]:
    """Take the pipe away from descriptors 0 and 1; returns where to read and where to write.

    Native code may print. Rebinding sys.stdout does not stop it, so descriptor 1 becomes standard error before any
    library is loaded, and descriptor 0 an empty file.
    """
    pipe_in, pipe_out = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return pipe_in, pipe_out


def ignore_signals() -> None:
    """Ctrl-C and a stopping service reach the whole group; only the router decides when its workers end."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)


def die_with_parent() -> None:
    """Ask Linux for a kill when the router dies: a backstop for a library that holds the interpreter's lock."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def rss_bytes() -> int:
    """The resident size of this process in bytes."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        # Not Linux: the peak must do.
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
