"""What a well-typed configuration can still have wrong: ranges, and keys that contradict each other or the disk.

Every check is a small function from a `Config` to problem lines, in one table; all of them run.
"""

from __future__ import annotations

import ipaddress
import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from needle_policies import registry
from needle_router.config.certificates import certificates_of
from needle_router.config.schema import Config
from needle_router.errors import ConfigError
from needle_router.ledger.place import SCHEMES, scheme_of

AT_LEAST, ABOVE, AT_MOST = operator.ge, operator.gt, operator.le
_WORDS = {AT_LEAST: "at least", ABOVE: "greater than", AT_MOST: "at most"}

Bound = tuple[Callable[[Any, Any], bool], float]

#: path -> what its number must satisfy. A test holds this against the schema: every numeric key has a row.
RANGES: Mapping[str, tuple[Bound, ...]] = {
    "server.port": ((AT_LEAST, 0), (AT_MOST, 65535)),
    "server.max_body_mb": ((ABOVE, 0),),
    "server.drain_delay_s": ((AT_LEAST, 0),),
    "server.drain_timeout_s": ((AT_LEAST, 0),),
    "server.header_timeout_s": ((ABOVE, 0),),
    "server.body_timeout_s": ((ABOVE, 0),),
    "server.write_timeout_s": ((ABOVE, 0),),
    "server.idle_timeout_s": ((ABOVE, 0),),
    # A key and the usual fields of a client need some hundred bytes; more than that is piled up in memory.
    "server.max_header_kb": ((AT_LEAST, 1), (AT_MOST, 1024)),
    "server.max_headers": ((AT_LEAST, 10),),
    "server.max_url_kb": ((ABOVE, 0), (AT_MOST, 1024)),
    "server.max_connections": ((AT_LEAST, 1),),
    "upstream.connect_timeout_s": ((ABOVE, 0),),
    "upstream.first_byte_timeout_s": ((ABOVE, 0),),
    "upstream.idle_timeout_s": ((ABOVE, 0),),
    "upstream.answer_timeout_s": ((AT_LEAST, 0),),
    "upstream.breaker_failures": ((AT_LEAST, 0),),
    "upstream.breaker_open_s": ((ABOVE, 0),),
    "engine.workers": ((AT_LEAST, 1), (AT_MOST, 256)),
    "engine.queue_limit": ((AT_LEAST, 1),),
    "engine.deadline_s": ((ABOVE, 0),),
    "engine.max_new_tokens": ((AT_LEAST, 1),),
    "engine.max_replay_steps": ((AT_LEAST, 1),),
    # Smaller than any envelope with reasoning, and a full buffer is a truncated answer.
    "engine.buffer_bytes": ((AT_LEAST, 4096),),
    "engine.cache_entries": ((AT_LEAST, 0),),
    "ledger.retention_days": ((ABOVE, 0),),
    "report.penalty_usd": ((AT_LEAST, 0), (AT_MOST, 1e9)),
    "report.dashboard_days": ((ABOVE, 0),),
}

#: Which names a backend takes as `engine.model`; each also takes the path of a .cact file.
MODELS: Mapping[str, tuple[str, ...]] = {"native": ("needle-2", "needle-3"), "rust": ("tiny", "needle-2", "needle-3")}


def check(config: Config, *, embedded: bool = False, routes: bool = True) -> list[str]:
    """Every problem of `config`, one line each.

    `embedded` leaves out what only a listening server can get wrong; without `routes` the files of certificates are not
    looked at, for the command that writes them.
    """
    checks = (*CHECKS, *(() if embedded else SERVER_CHECKS), *((certificates,) if routes else ()))
    return [line for one in checks for line in one(config)]


def ranges(config: Config) -> Iterator[str]:
    """Numbers outside their range."""
    for path, bounds in RANGES.items():
        section, _, name = path.partition(".")
        value = getattr(getattr(config, section), name)
        for holds, limit in bounds:
            if not holds(value, limit):
                yield f"{path}: {value} must be {_WORDS[holds]} {limit:g}"


def prices(config: Config) -> Iterator[str]:
    """Prices below zero."""
    for model, price in config.prices.items():
        for name in ("input", "cached_input", "output"):
            value = getattr(price, name)
            if value is not None and not 0 <= value < float("inf"):
                yield f'prices."{model}".{name}: {value} must be a finite number of at least 0 (USD per million tokens)'


def router_keys(config: Config) -> Iterator[str]:
    """Router keys that no client can send, without showing them."""
    for index, key in enumerate(config.server.api_keys):
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            yield f"server.api_keys[{index}]: must be printable ASCII without blanks"


def upstream_url(config: Config) -> Iterator[str]:
    """An address that cannot be an upstream. The value is not shown: it may hold a password."""
    if config.upstream.base_url:
        wrong = url_fault(config.upstream.base_url)
        if wrong:
            yield f"upstream.base_url: {wrong}"
    elif config.upstream.fallback_urls:
        yield "upstream.fallback_urls: there is no upstream.base_url that they could stand in for"
    for index, url in enumerate(config.upstream.fallback_urls):
        wrong = url_fault(url)
        if wrong:
            yield f"upstream.fallback_urls[{index}]: {wrong}"


def url_fault(url: str) -> str:
    """What is wrong with a base URL, or nothing."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    rules = (
        (parts.scheme not in ("http", "https"), "must begin with http:// or https://"),
        (not parts.hostname, "has no host name"),
        (port == 0, "port 0 cannot be connected to"),
        (
            parts.username is not None or parts.password is not None,
            "must not hold a user or password; use upstream.api_key",
        ),
        ("?" in url, "must not have a query"),
        ("#" in url, "must not have a fragment"),
        (any(c.isspace() or not c.isprintable() or c == "\\" for c in url), "holds a blank or control character"),
        (any(segment in (".", "..") for segment in parts.path.split("/")), "must not have dot segments"),
    )
    return next((text for broken, text in rules if broken), "")


def injected_key(config: Config) -> Iterator[str]:
    """A key that would be lent to anybody, or is not there."""
    if not config.upstream.inject_key:
        return
    if not config.upstream.api_key:
        yield "upstream.inject_key: there is no key to inject; set upstream.api_key or OPENAI_API_KEY"
    if not config.server.api_keys:
        yield "upstream.inject_key: needs server.api_keys, or whoever reaches the port spends your key"


def model(config: Config) -> Iterator[str]:
    """A model that the backend cannot load."""
    engine = config.engine
    if engine.backend == "scripted":
        return
    names = MODELS[engine.backend]
    if is_path(engine.model):
        if not Path(engine.model).expanduser().is_file():
            yield f"engine.model: there is no file {engine.model}"
    elif engine.model not in names:
        other = next((backend for backend, known in MODELS.items() if engine.model in known), "")
        hint = f'; {engine.model!r} needs backend = "{other}"' if other else ""
        yield (
            f'engine.model: backend "{engine.backend}" takes {", ".join(names)} or the path of a .cact file, '
            f"not {engine.model!r}{hint}"
        )


def tool_index(config: Config) -> Iterator[str]:
    """A tool index that is not there, or that the backend cannot use."""
    path = config.engine.tool_index
    if path and config.engine.backend != "native":
        yield f'engine.tool_index: only backend "native" has one, not "{config.engine.backend}"'
    elif path and not Path(path).expanduser().is_file():
        yield f"engine.tool_index: there is no file {path}"


def chaining(config: Config) -> Iterator[str]:
    """Going on after tool results where no session could know what they answer."""
    engine = config.engine
    if engine.chain_tool_results and engine.session != "replay":
        yield f'engine.chain_tool_results: needs engine.session = "replay", not "{engine.session}"'
    elif engine.chain_tool_results and engine.backend == "rust":
        yield 'engine.chain_tool_results: backend "rust" remembers no conversation; backend "native" does'


def is_path(model: str) -> bool:
    """Whether `engine.model` is a file rather than a name."""
    return model.endswith(".cact") or os.sep in model


def script(config: Config) -> Iterator[str]:
    """A scripted engine without a script that can be read."""
    if config.engine.backend != "scripted":
        return
    path = config.engine.script
    if not path:
        yield 'engine.script: backend "scripted" needs the path of a JSON file'
        return
    try:
        document = json.loads(Path(path).expanduser().read_bytes())
    except OSError as error:
        yield f"engine.script: {path} cannot be read: {error.strerror or error}"
    except (ValueError, RecursionError) as error:
        yield f"engine.script: {path} is not JSON: {error}"
    else:
        if not isinstance(document, dict):
            yield f"engine.script: {path} must hold a JSON object"


def ledger_place(config: Config) -> Iterator[str]:
    """A ledger's URL that leads nowhere. The value is not shown: it may hold a password."""
    scheme = scheme_of(config.ledger.path)
    if not scheme:
        return
    if scheme not in SCHEMES:
        yield f"ledger.path: {scheme}:// is not known; give the path of a file or a postgresql:// URL"
        return
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        yield "ledger.path: a PostgreSQL ledger needs its driver: pip install 'needle-router[postgres]'"
        return
    try:
        conninfo_to_dict(config.ledger.path)
    except Error:
        yield "ledger.path: is no connection URL that libpq understands"


def policies(config: Config) -> Iterator[str]:
    """Policy tables that cannot become policies."""
    try:
        yield from registry.problems(config.policy)
    except Exception as error:  # a third-party package may raise anything while it is imported
        yield f"policy: a policy package cannot be loaded: {type(error).__name__}: {error}"


def certificates(config: Config) -> Iterator[str]:
    """Certificate files that are not there, or are none."""
    try:
        certificates_of(config)
    except ConfigError as error:
        yield from error.problems


def exposure(config: Config) -> Iterator[str]:
    """A port that others can reach and nobody guards."""
    server = config.server
    if not (is_loopback(server.host) or server.api_keys or server.allow_unauthenticated):
        yield (
            f"server.host: {server.host} can be reached by others; set server.api_keys, "
            "or server.allow_unauthenticated = true if something in front checks who calls"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def own_address(config: Config) -> Iterator[str]:
    """An upstream that is the router itself: every request would go round in a ring."""
    try:
        parts = urlsplit(config.upstream.base_url)
        port = _port(parts)
    except ValueError:
        return  # `upstream_url` says so
    host, server = parts.hostname or "", config.server
    here = is_loopback(host) or host in ("0.0.0.0", "::", server.host.strip("[]").lower())  # noqa: S104  # compared, not bound
    if host and here and port == server.port and server.port != 0:
        yield (
            f"upstream.base_url: {host}:{port} is the router itself; point it (or OPENAI_BASE_URL, which is used when "
            'nothing else names an upstream) at the real endpoint, or set it to "" for Needle alone'
        )


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


Check = Callable[[Config], Iterator[str]]

CHECKS: tuple[Check, ...] = (
    ranges,
    prices,
    router_keys,
    upstream_url,
    injected_key,
    model,
    tool_index,
    chaining,
    script,
    ledger_place,
    policies,
)
#: Asked only of a server of our own; inside somebody's app, listening is not ours.
SERVER_CHECKS: tuple[Check, ...] = (exposure, own_address)
