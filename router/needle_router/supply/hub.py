"""The model hub, through huggingface_hub: its cache, its locks, its resuming of broken connections.

HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are that package's and work as it documents them; it reads them when
it is imported, so this module imports it late.

Left to itself it tries an unreachable hub for 23 seconds. So the hub is asked first, once and briefly, which commit a
branch stands for; only when that was answered does a download begin.
"""

from __future__ import annotations

import errno
import json
import logging
import warnings
from pathlib import Path
from typing import Any, Protocol

from needle_router._version import __version__
from needle_router.supply.faults import NoRoom, NotThere, SupplyFault, Unreachable

ASK_TIMEOUT_S = 5.0
#: Libraries that would speak of each request.
LOUD = ("httpx", "httpx2", "httpcore", "httpcore2", "filelock")
#: Statuses by which a hub, or what stands in its place, keeps something to itself.
HIDDEN = (401, 403, 404)


class Hub(Protocol):
    """Where files come from."""

    def commit_of(self, repo: str, revision: str) -> str:
        """The commit that a branch or commit name stands for. Raises SupplyFault."""
        ...

    def fetch(self, repo: str, filename: str, revision: str, *, again: bool = False) -> Path:
        """A file, downloaded or from the hub's cache; `again` ignores the cache. Raises SupplyFault."""
        ...


class HuggingFaceHub:
    """The hub of the environment. `progress` is a tqdm class; None shows bars as huggingface_hub does."""

    def __init__(self, progress: type[Any] | None = None) -> None:
        import huggingface_hub
        from huggingface_hub import constants

        self._hub = huggingface_hub
        self._progress = progress
        self.endpoint: str = constants.ENDPOINT
        self.offline: bool = constants.is_offline_mode()
        _speak_through_our_log()

    def commit_of(self, repo: str, revision: str) -> str:
        """As in `Hub`; without a network, from the cache: there the revision is only named again."""
        if self.offline:
            return revision
        try:
            api = self._hub.HfApi(library_name="needle-router", library_version=__version__)
            commit = api.model_info(repo, revision=revision, timeout=ASK_TIMEOUT_S).sha
        except Exception as error:  # whatever client lies under huggingface_hub; each kind is named
            raise self._fault(error, f"{repo} at {revision}") from error
        if not commit:
            raise Unreachable(f"{self.endpoint} answers, but names no commit for {repo}: is it a model hub?")
        return commit

    def fetch(self, repo: str, filename: str, revision: str, *, again: bool = False) -> Path:
        """As in `Hub`."""
        try:
            path = self._hub.hf_hub_download(
                repo,
                filename,
                revision=revision,
                library_name="needle-router",
                library_version=__version__,
                etag_timeout=ASK_TIMEOUT_S,
                local_files_only=self.offline,
                force_download=again and not self.offline,
                tqdm_class=self._progress,
            )
        except Exception as error:  # as above
            raise self._fault(error, f"{filename} of {repo} at {revision}") from error
        return Path(path)

    def _fault(self, error: Exception, what: str) -> SupplyFault:
        from huggingface_hub import errors

        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            return NoRoom(f"{what} cannot be stored in the cache of huggingface_hub: {error.strerror}")
        if self.offline:
            return NotThere(f"{what} is not in the cache of huggingface_hub, and HF_HUB_OFFLINE forbids asking the hub")
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, errors.RevisionNotFoundError | errors.RemoteEntryNotFoundError):
            return NotThere(f"{self.endpoint} has no {what}")
        if isinstance(error, errors.RepositoryNotFoundError) or status in HIDDEN:
            why = "it does not exist, or HF_TOKEN is missing or does not allow it"
            return NotThere(f"{self.endpoint} does not show {what} (HTTP {status}): {why}")
        return Unreachable(f"{what} cannot be had from {self.endpoint}: {_reason(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "it does not answer as a model hub does; is HF_ENDPOINT right?"
    cause = error.__cause__ or error
    first_line = (str(cause).strip() or "no answer").splitlines()[0]
    return f"{type(cause).__name__}: {first_line}"


def _speak_through_our_log() -> None:
    """huggingface_hub has a handler of its own, whose lines would look unlike all others, and warns of a full disk."""
    # It only guesses; the write itself tells, and then there is one line of ours.
    warnings.filterwarnings("ignore", message="Not enough free disk space")
    logger = logging.getLogger("huggingface_hub")
    logger.handlers.clear()
    logger.propagate = True
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
