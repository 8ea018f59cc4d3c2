"""`replay`: recorded requests or a data set through engine and policies, offline."""

from __future__ import annotations

import datetime
import json
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needle_router.calibrate.certify import certify
from needle_router.calibrate.samples import ALL_TOOLS
from needle_router.cli.calibrate import check_arguments
from needle_router.cli.exits import Exit, Stop
from needle_router.cli.files import write_private
from needle_router.cli.logs import printable, set_up
from needle_router.cli.options import Settings, loaded
from needle_router.cli.progress import Progress
from needle_router.config.schema import Config
from needle_router.replay.ablation import SLUGS, ablated
from needle_router.replay.cases import Case, SourceProblem
from needle_router.replay.result import Result, as_json
from needle_router.replay.rows import Row, sample_lines
from needle_router.replay.run import Conditions, EngineMissing, replay
from needle_router.replay.sources import chosen, data_set, read_source
from needle_router.replay.text import lines

if TYPE_CHECKING:
    import anyio

INTERRUPTED = 130  # 128 + SIGINT, as a shell counts


@dataclass(frozen=True, slots=True)
class Wishes:
    """The arguments of the command, as they were given."""

    source: str
    limit: int | None
    categories: tuple[str, ...]
    seed: int
    today: str | None
    without: tuple[str, ...]
    ablate: bool
    max_error: float | None
    delta: float
    plot: str | None
    samples: str | None
    rows: str | None
    as_json: bool


def run(settings: Settings | None, wishes: Wishes) -> int:
    """Replay and print; 0, 1 when nothing could be certified, 4 without an engine, 130 when it was interrupted."""
    conditions = checked(wishes)
    config = engine_of(settings)
    set_up("error")
    cases = cases_of(wishes)
    rows = rows_of(config, cases, conditions)
    result = judged(wishes, conditions, config, cases, rows)
    write_files(wishes, result)
    if wishes.as_json:
        print(json.dumps(as_json(result)))
    else:
        print(*map(printable, lines(result)), sep="\n")
    if result.interrupted:
        return INTERRUPTED
    refused = result.certificate is not None and result.certificate.threshold is None
    return Exit.FAILED if refused else Exit.OK


def checked(wishes: Wishes) -> Conditions:
    """The conditions of the run; stops at arguments that cannot be meant."""
    if wishes.limit is not None and wishes.limit < 1:
        raise Stop(Exit.USAGE, f"--limit {wishes.limit}: expected a number of requests, 1 or more")
    if unknown := [name for name in wishes.without if name not in SLUGS]:
        raise Stop(Exit.USAGE, f"--without {printable(unknown[0])}: expected one of {', '.join(SLUGS)}")
    if wishes.max_error is not None:
        check_arguments(wishes.max_error, wishes.delta, "best")
    if wishes.plot is not None and Path(wishes.plot).suffix not in (".svg", ".png"):
        raise Stop(Exit.USAGE, f"--plot {printable(wishes.plot)}: expected a name that ends in .svg or .png")
    try:
        today = datetime.date.fromisoformat(wishes.today) if wishes.today else datetime.date.today()
    except ValueError:
        raise Stop(Exit.USAGE, f"--today {printable(wishes.today or '')}: expected a date as 2026-11-30") from None
    return Conditions(today, frozenset(wishes.without))


def engine_of(settings: Settings | None) -> Config:
    """The configuration; where it names no engine, the model in the package runs, and a `.cact` file by needle-rs."""
    from needle_router.config.load import named_keys

    settings = settings or Settings()
    named = named_keys(settings.config) | settings.flags().keys()
    fallback = {}
    if "engine.backend" not in named:
        fallback["engine.backend"] = "rust"
        if "engine.model" not in named:
            fallback["engine.model"] = "tiny"
    return loaded(settings, fallback).config


def cases_of(wishes: Wishes) -> list[Case]:
    """The cases to replay."""
    try:
        cases = chosen(read_source(wishes.source, wishes.seed), wishes.categories, wishes.limit, wishes.seed)
    except SourceProblem as problem:
        raise Stop(Exit.USAGE, *map(printable, problem.lines)) from None
    if not cases:
        raise Stop(Exit.USAGE, f"{printable(wishes.source)} holds no request")
    return cases


def rows_of(config: Config, cases: Sequence[Case], conditions: Conditions) -> list[Row]:
    """The rows in the order of the cases; those that were reached before Ctrl-C."""
    import anyio

    found: dict[int, Row] = {}
    fault = anyio.run(_noted, config, cases, conditions, found)
    # Raised out here: inside, a task group would wrap it.
    if fault is not None:
        raise Stop(Exit.ENGINE_MISSING, f"the engine did not load: {fault}")
    return [found[index] for index in sorted(found)]


async def _noted(
    config: Config, cases: Sequence[Case], conditions: Conditions, found: dict[int, Row]
) -> EngineMissing | None:
    """Put the row of each case into `found` until all are there or Ctrl-C comes."""
    import anyio

    fault: EngineMissing | None = None
    with Progress(len(cases)) as progress:

        def note(index: int, row: Row) -> None:
            found[index] = row
            progress.step(row.answered)

        async with anyio.create_task_group() as group:
            group.start_soon(_until_interrupted, group.cancel_scope)
            try:
                await replay(config, cases, conditions, note)
            except EngineMissing as missing:
                fault = missing
            group.cancel_scope.cancel()
    return fault


async def _until_interrupted(scope: anyio.CancelScope) -> None:
    """Ends the scope at the first Ctrl-C, so that what was found so far can be told."""
    import anyio

    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


def judged(
    wishes: Wishes, conditions: Conditions, config: Config, cases: Sequence[Case], rows: Sequence[Row]
) -> Result:
    """The rows with what was asked about them: a certificate, and the checks left out one by one."""
    engine = config.engine
    result = Result(
        source=wishes.source,
        backend=engine.backend,
        model=engine.model,
        today=conditions.today.isoformat(),
        total=len(cases),
        rows=rows,
        without=conditions.without,
    )
    if wishes.max_error is not None:
        certificate = certify(ALL_TOOLS, result.labelled, alpha=wishes.max_error, delta=wishes.delta)
        result = replace(result, certificate=certificate)
    if wishes.ablate:
        threshold = threshold_of(result, config)
        result = replace(result, threshold=threshold, lines=ablated(rows, threshold))
    return result


def threshold_of(result: Result, config: Config) -> float:
    """The certified threshold, else that of the configured policy, else 0."""
    certified = result.certificate.threshold if result.certificate is not None else None
    if certified is not None:
        return certified
    configured = (table.get("minimum", 0.85) for table in config.policy if table.get("kind") == "threshold")
    return float(next(configured, 0.0))


def write_files(wishes: Wishes, result: Result) -> None:
    """The plot, the labelled decisions and the rows, where asked."""
    if wishes.plot is not None:
        write_private(Path(wishes.plot).expanduser(), _plot(wishes.plot, result, wishes.max_error))
    if wishes.samples is not None:
        # The cases of a data set have tools of their own each: bound to those, nothing could be certified together.
        bound = data_set(wishes.source) is None
        decisions = sample_lines(result.rows, result.without, bound=bound)
        _write_lines(wishes.samples, decisions)
    if wishes.rows is not None:
        _write_lines(wishes.rows, map(asdict, result.rows))


def _write_lines(name: str, values: Iterable[Mapping[str, Any]]) -> None:
    content = "".join(json.dumps(value) + "\n" for value in values)
    write_private(Path(name).expanduser(), content.encode())


def _plot(name: str, result: Result, target: float | None) -> bytes:
    from needle_router.replay.curves import picture, plain

    svg = picture(result.rows, title=result.source.rpartition("/")[2], target=target)
    if name.endswith(".svg"):
        return svg.encode()
    try:
        import resvg_py
    except ImportError:
        raise Stop(Exit.FAILED, f"{name}: a PNG needs the package resvg-py: pip install 'needle-router[png]'") from None
    return bytes(resvg_py.svg_to_bytes(svg_string=plain(svg), zoom=2))
