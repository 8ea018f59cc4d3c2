"""The certificate files that `threshold` policies name: read at the start and at each reload, never in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from needle_policies.certified import Certificates
from needle_router.calibrate.certificates import BadCertificates, read_certificates
from needle_router.config.schema import Config
from needle_router.errors import ConfigError

#: Thousands of fingerprints fit; more is no file of ours.
MAX_FILE_BYTES = 16_000_000


def certificates_of(config: Config) -> dict[str, Certificates]:
    """What stands in each file, by the path as it is written in the configuration. Raises `ConfigError`."""
    found: dict[str, Certificates] = {}
    problems: list[str] = []
    for key, path in named(config):
        try:
            found[path] = read_certificates(content_of(path))
        except BadCertificates as error:
            problems += [f"{key}: {path}: {problem}" for problem in error.problems]
        except OSError as error:
            problems.append(f"{key}: {path} cannot be read: {error.strerror or error}")
    if problems:
        raise ConfigError(problems)
    return found


def named(config: Config) -> Iterator[tuple[str, str]]:
    """Key and path of every file that is named."""
    for index, table in enumerate(config.policy):
        path = table.get("certificates")
        # A value of a wrong type is told by the policy's own check.
        if table.get("kind") == "threshold" and isinstance(path, str) and path:
            yield f"policy[{index}].certificates", path


def content_of(path: str) -> bytes:
    """The bytes of a certificate file. Raises `BadCertificates` for what is no file of ours, and OSError."""
    file = Path(path).expanduser()
    if file.exists() and not file.is_file():
        raise BadCertificates(["is not a regular file"])
    with file.open("rb") as source:
        content = source.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise BadCertificates([f"has more than {MAX_FILE_BYTES} bytes"])
    return content
