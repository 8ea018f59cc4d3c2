"""`check`: is everything in place? Each probe is a function that returns one finding; all of them run.

The upstream is asked for its model list with the configured key, if there is one, and nothing else: a key from the
environment is not sent to an address that it was not meant for.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from needle_router.cli.exits import Exit, Stop
from needle_router.cli.listen import listen
from needle_router.cli.logs import printable, set_up
from needle_router.cli.options import Settings, loaded
from needle_router.cli.versions import versions
from needle_router.config.schema import Config
from needle_router.ledger.place import Place

State = Literal["ok", "warning", "failed"]
#: Less than this, and a model download or a year of records does not fit.
LOW_DISK_BYTES = 500_000_000
ENGINE_WAIT_S = 60.0
UPSTREAM_WAIT_S = 15.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one probe saw."""

    name: str
    state: State
    text: str


def check(settings: Settings | None, *, as_json: bool) -> Exit:
    """Run every probe and print what was found; the exit code says how bad the worst is."""
    found = loaded(settings)
    set_up("error")
    findings = [probe(found.config) for probe in PROBES]
    findings.insert(0, Finding("config", "ok", str(found.path or "no file: environment, flags and defaults")))
    code = verdict(findings)
    if as_json:
        rows = [asdict(finding) for finding in findings]
        print(json.dumps({"ok": code == Exit.OK, "checks": rows, "versions": versions()}))
    else:
        for finding in findings:
            print(f"{finding.state:<8} {finding.name:<9} {printable(finding.text)}")
    return code


def verdict(findings: list[Finding]) -> Exit:
    """4 when the engine failed, 1 when anything else did, else 0."""
    failed = {finding.name for finding in findings if finding.state == "failed"}
    if "engine" in failed:
        return Exit.ENGINE_MISSING
    return Exit.FAILED if failed else Exit.OK


def versions_found(config: Config) -> Finding:
    """Which packages are there."""
    found = versions()
    needed = {"native": "cactus-needle", "rust": "needle-rs"}.get(config.engine.backend)
    text = ", ".join(f"{name} {number or 'not installed'}" for name, number in found.items())
    missing = needed is not None and found[needed] is None
    return Finding("versions", "failed" if missing else "ok", text)


def upstream(config: Config) -> Finding:
    """GET /v1/models of the upstream."""
    if not config.upstream.base_url:
        return Finding("upstream", "ok", "none: Needle alone")
    import httpx

    host = httpx.URL(config.upstream.base_url).netloc.decode("ascii")
    key = config.upstream.api_key
    try:
        answer = httpx.get(
            config.upstream.base_url.rstrip("/").removesuffix("/v1") + "/v1/models",
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(UPSTREAM_WAIT_S, connect=min(UPSTREAM_WAIT_S, config.upstream.connect_timeout_s)),
            trust_env=False,
        )
    except (httpx.HTTPError, OSError) as error:
        return Finding("upstream", "failed", f"{host} cannot be asked: {type(error).__name__}: {error}")
    return Finding("upstream", *judged(host, answer.status_code, answer.content, has_key=bool(key)))


def judged(host: str, status: int, body: bytes, *, has_key: bool) -> tuple[State, str]:
    """What a status and body of /v1/models say about an upstream."""
    if status in (401, 403):
        if has_key:
            return "failed", f"{host} answers, but refuses upstream.api_key (HTTP {status})"
        return "ok", f"{host} answers and asks for a key, which clients send themselves"
    if status == 404:
        return "warning", f"{host} answers, but has no /v1/models (HTTP 404); is the address right?"
    if status != 200:
        return "failed", f"{host} answers with HTTP {status}"
    try:
        count = len(json.loads(body)["data"])
    except (ValueError, KeyError, TypeError):
        return "warning", f"{host} answers, but its /v1/models is no list of models"
    return "ok", f"{host} answers and lists {count} model{'s' if count != 1 else ''}"


def engine(config: Config) -> Finding:
    """Load the engine in its process, then stop it."""
    if config.mode == "off":
        return Finding("engine", "ok", "off, because mode is off")
    import anyio

    state, text = anyio.run(engine_state, config)
    return Finding("engine", "ok" if state == "ready" else "failed", text)


async def engine_state(config: Config) -> tuple[str, str]:
    """The state that the engine reaches, and what it says about it."""
    from needle_router.build import build_engine, wait_until_loaded

    built = build_engine(config, os.environ)
    try:
        await built.start()
        state = await wait_until_loaded(built, timeout_s=ENGINE_WAIT_S)
        detail = built.health().detail
    finally:
        await built.aclose()
    name = f"{config.engine.model} on {config.engine.backend}"
    if state == "loading":
        return state, f"{name} is not loaded after {ENGINE_WAIT_S:.0f} s"
    demo = " (demo model: not Needle's quality)" if config.engine.model == "tiny" else ""
    return state, f"{name}: {state}{demo}" + (f": {detail}" if detail else "")


def port(config: Config) -> Finding:
    """Whether the port can be taken; a router that runs there already is no fault."""
    host, number = config.server.host, config.server.port
    try:
        listen(host, number).close()
    except Stop as stop:
        if stop.code == Exit.PORT_IN_USE and is_router(host, number):
            return Finding("port", "ok", f"{number}: a needle-router is serving there")
        return Finding("port", "failed", "; ".join(stop.lines))
    return Finding("port", "ok", f"{number} on {host} is free")


def is_router(host: str, number: int) -> bool:
    """Whether what listens there answers /readyz as we do."""
    import httpx

    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host).strip("[]")  # noqa: S104  # compared, not bound
    url = f"http://[{name}]:{number}/readyz" if ":" in name else f"http://{name}:{number}/readyz"
    try:
        document: Any = httpx.get(url, timeout=2, trust_env=False).json()
    except (httpx.HTTPError, OSError, ValueError):
        return False
    return isinstance(document, Mapping) and {"engine", "ledger", "mode"} <= set(document)


def ledger(config: Config) -> Finding:
    """Whether the ledger can be reached, and its file written; nothing is changed in it."""
    from needle_router.build import ledger_path

    place = ledger_path(config, os.environ)
    if place is None:
        return Finding("ledger", "ok", "off")
    try:
        if isinstance(place, Path):
            writable(place)
        held = f", {records(place)} records" if place.exists() else ""
    except OSError as error:
        return Finding("ledger", "failed", f"{place} cannot be used: {error}")
    return Finding("ledger", "ok", f"{place}{held}")


def writable(path: Path) -> None:
    """Raises `OSError` when the file, or one beside it, cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryFile(dir=path.parent):
        pass
    if path.exists():
        os.close(os.open(path, os.O_WRONLY))


def records(place: Place) -> int:
    """How many records the ledger holds."""
    from needle_router.ledger.stores import store_of

    with store_of(place).reading() as ledger:
        return ledger.summary().records


def disk(config: Config) -> Finding:
    """Room for models and records."""
    from needle_router.build import ledger_path

    place = ledger_path(config, os.environ)
    folder = existing(place if isinstance(place, Path) else Path.cwd() / "x")
    free = shutil.disk_usage(folder).free
    return Finding("disk", "ok" if free >= LOW_DISK_BYTES else "warning", f"{free / 1e9:.1f} GB free at {folder}")


def existing(path: Path) -> Path:
    """The nearest folder above `path` that is there."""
    return next((folder for folder in path.absolute().parents if folder.is_dir()), Path("/"))


PROBES: tuple[Callable[[Config], Finding], ...] = (versions_found, upstream, engine, port, ledger, disk)
