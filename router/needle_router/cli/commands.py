"""The table of commands: names, flags and help; the work is imported only when a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from needle_router._version import __version__
from needle_router.cli.exits import Exit, say
from needle_router.cli.options import Settings

HELP = """A tool-call router: answers tool-call turns locally with Needle and passes everything else, byte for byte,
to your OpenAI-compatible endpoint. Without a command it serves."""

app = App(
    name="needle-router",
    help=HELP,
    version=__version__,
    help_format="plaintext",
    result_action="return_value",
)
config_app = App(name="config", help="Look at the configuration.", help_format="plaintext")
app.command(config_app)
ledger_app = App(name="ledger", help="Look at the ledger, or take records out of it.", help_format="plaintext")
app.command(ledger_app)

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")]


def run(arguments: Sequence[str]) -> int:
    """Parse `arguments` and run the command; returns the exit code."""
    try:
        code = app(list(arguments), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        say(*str(error).splitlines(), "see needle-router --help")
        return Exit.USAGE
    return code if isinstance(code, int) else Exit.OK


@app.default
@app.command(name="serve")
def serve(*, settings: Settings | None = None) -> int:
    """Listen and route (the default command)."""
    from needle_router.cli.serve import serve as work

    return work(settings)


@app.command(name="demo")
def demo(
    *,
    keep: Annotated[bool, Parameter(negative=(), help="Go on serving afterwards, until Ctrl-C.")] = False,
    port: Annotated[int, Parameter(help="Port of the demo's router; 0 takes a free one.")] = 0,
) -> int:
    """Start a demo upstream and a router with the built-in demo model, and send it some turns."""
    from needle_router.cli.demo import demo as work

    return work(keep=keep, port=port)


@app.command(name="check")
def check(*, settings: Settings | None = None, json: Json = False) -> int:
    """Look whether everything is in place: upstream, engine, port, ledger, disk, versions."""
    from needle_router.cli.check import check as work

    return work(settings, as_json=json)


@app.command(name="pull")
def pull(
    model: Annotated[str | None, Parameter(help="needle-2 or needle-3; the configured model when left out.")] = None,
    /,
    *,
    settings: Settings | None = None,
    update: Annotated[
        bool, Parameter(negative=(), help="Take what the hub has now, although other hashes were recorded.")
    ] = False,
) -> int:
    """Fetch an engine from the model hub; its hashes are recorded at first, and kept ever after."""
    from needle_router.cli.pull import pull as work

    return work(model, settings, update=update)


@app.command(name="explain")
def explain(
    file: Annotated[
        str,
        # The hyphen must be allowed for "-" itself.
        Parameter(
            allow_leading_hyphen=True, help="The JSON body of a chat completion request, or - for standard input."
        ),
    ],
    /,
    *,
    header: Annotated[
        tuple[str, ...],
        Parameter(negative=(), show_default=False, help='A header of the request, as "x-needle-mode: shadow".'),
    ] = (),
    settings: Settings | None = None,
    json: Json = False,
) -> int:
    """Say what the router would do with a request, and why. Never contacts the upstream."""
    from needle_router.cli.explain import explain as work

    return work(file, settings, headers=header, as_json=json)


@app.command(name="calibrate")
def calibrate(
    *,
    max_error: Annotated[
        float | None, Parameter(help="The share of answered calls that may be wrong, 0.05 for 5 %.")
    ] = None,
    by_risk: Annotated[
        bool,
        Parameter(negative=(), help="A threshold for each tool, with the share that side-effects allows its class."),
    ] = False,
    delta: Annotated[float, Parameter(help="The probability that the promise is broken.")] = 0.05,
    source: Annotated[
        str | None,
        Parameter(name="--from", help='JSON lines with "tool", "confidence", "verified", "correct"; else the ledger.'),
    ] = None,
    per_tool: Annotated[bool, Parameter(negative=(), help="A threshold for each tool, too.")] = False,
    method: Annotated[str, Parameter(help="best, fixed-sequence, multi-start or sgr.")] = "best",
    fingerprint: Annotated[str | None, Parameter(help="Decisions of this fingerprint; else the most frequent.")] = None,
    audits: Annotated[
        bool, Parameter(negative=(), help="Of the ledger, the audited answers instead of what was only watched.")
    ] = False,
    all_fingerprints: Annotated[
        bool, Parameter(negative=(), help="Certify each fingerprint by itself, all into one file.")
    ] = False,
    output: Annotated[
        str | None, Parameter(help="Write what was certified to this file, for the option certificates of threshold.")
    ] = None,
    settings: Settings | None = None,
    json: Json = False,
) -> int:
    """Find thresholds whose error is certified, and say what is missing where there are none."""
    from needle_router.cli.calibrate import Selection
    from needle_router.cli.calibrate import calibrate as work

    return work(
        settings,
        Selection(source, fingerprint, all_fingerprints, audits),
        alpha=max_error,
        delta=delta,
        per_tool=per_tool,
        by_risk=by_risk,
        method=method,
        output=output,
        as_json=json,
    )


@app.command(name="report")
def report(
    *,
    since: Annotated[str, Parameter(help="Begin: 7d, 12h ago, a date, or a date and time.")] = "30d",
    until: Annotated[str | None, Parameter(help="End, given the same way; a date includes its day. Else now.")] = None,
    by: Annotated[str | None, Parameter(help="The balance and one table: tool, model, reason, day or policy.")] = None,
    penalty_usd: Annotated[
        float | None, Parameter(help="What one wrong local answer costs you; else report.penalty_usd.")
    ] = None,
    certificates: Annotated[
        str | None, Parameter(help="Say what was seen of this certificate file; else of those in the configuration.")
    ] = None,
    html: Annotated[str | None, Parameter(help="Write a page that needs no network to this file.")] = None,
    settings: Settings | None = None,
    json: Json = False,
) -> int:
    """Say what was saved, net of audits, races and errors, and how often engine and upstream agree."""
    from needle_router.cli.report import report as work

    return work(
        settings,
        since=since,
        until=until,
        by=by,
        penalty_usd=penalty_usd,
        certificates=certificates,
        html=html,
        as_json=json,
    )


@app.command(name="canary")
def canary(
    *,
    reset: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(), show_default=False, help="Take back the alarm of this tool, * for all; may be repeated."
        ),
    ] = (),
    settings: Settings | None = None,
    json: Json = False,
) -> int:
    """Say how the tools of a canary stand, or take back an alarm."""
    from needle_router.cli.canary import canary as work

    return work(settings, reset=reset, as_json=json)


@app.command(name="replay")
def replay(
    source: Annotated[str, Parameter(help="bfcl, needle-environments, home-assistant-intents, or a JSON lines file.")],
    /,
    *,
    limit: Annotated[int | None, Parameter(help="At most so many requests, drawn uniformly.")] = None,
    category: Annotated[
        tuple[str, ...], Parameter(negative=(), show_default=False, help="Of this category only; may be repeated.")
    ] = (),
    seed: Annotated[int, Parameter(help="What is drawn, is drawn by this number.")] = 1,
    today: Annotated[str | None, Parameter(help="The day that the engine is told, as 2026-11-30; else today.")] = None,
    without: Annotated[
        tuple[str, ...],
        Parameter(negative=(), show_default=False, help="Leave a verifier out, by its reason; may be repeated."),
    ] = (),
    ablate: Annotated[bool, Parameter(negative=(), help="Show what each verifier does.")] = False,
    max_error: Annotated[float | None, Parameter(help="Certify a threshold for this share of wrong answers.")] = None,
    delta: Annotated[float, Parameter(help="The probability that the promise is broken.")] = 0.05,
    plot: Annotated[str | None, Parameter(help="Draw risk against coverage to this .svg or .png file.")] = None,
    samples: Annotated[str | None, Parameter(help="Write labelled decisions for calibrate --from.")] = None,
    rows: Annotated[str | None, Parameter(help="Write what became of each request, as JSON lines.")] = None,
    settings: Settings | None = None,
    json: Json = False,
) -> int:
    """Run recorded requests or a data set through engine and policies, offline, and count what is right."""
    from needle_router.cli.replay import Wishes, run

    return run(
        settings,
        Wishes(
            source=source,
            limit=limit,
            categories=category,
            seed=seed,
            today=today,
            without=without,
            ablate=ablate,
            max_error=max_error,
            delta=delta,
            plot=plot,
            samples=samples,
            rows=rows,
            as_json=json,
        ),
    )


@config_app.command(name="check")
def config_check(*, settings: Settings | None = None) -> int:
    """Name everything that is wrong with the configuration."""
    from needle_router.cli.configure import check as work

    return work(settings)


@config_app.command(name="show")
def config_show(
    *,
    settings: Settings | None = None,
    effective: Annotated[bool, Parameter(negative=(), help="Every key, also those at their default.")] = False,
) -> int:
    """Print the configuration with the origin of each value, keys redacted."""
    from needle_router.cli.configure import show as work

    return work(settings, effective=effective)


@ledger_app.command(name="export")
def ledger_export(
    *,
    kind: Annotated[str, Parameter(name="--format", help="jsonl, csv or sqlite (one flat table).")] = "jsonl",
    since: Annotated[str | None, Parameter(help="7d or 12h back from now, a date, or a date and time.")] = None,
    until: Annotated[str | None, Parameter(help="The same; a date means its end.")] = None,
    output: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="The file to write, or - for standard output.")
    ] = "-",
    settings: Settings | None = None,
) -> int:
    """Write the records of a period for another program to read."""
    from needle_router.cli.ledger import export as work

    return work(settings, kind=kind, since=since, until=until, output=output)


@ledger_app.command(name="info")
def ledger_info(*, settings: Settings | None = None, json: Json = False) -> int:
    """Say where the ledger is, how large, and from when to when its records are."""
    from needle_router.cli.ledger import info as work

    return work(settings, as_json=json)


@ledger_app.command(name="prune")
def ledger_prune(
    *,
    older_than: Annotated[
        str | None, Parameter(help="7d or 12h back from now, or a date; else what ledger.retention_days says.")
    ] = None,
    settings: Settings | None = None,
) -> int:
    """Remove old records now. A router that runs does so by itself, once an hour."""
    from needle_router.cli.ledger import prune as work

    return work(settings, older_than=older_than)


@app.command(name="version")
def version(*, json: Json = False) -> int:
    """Print the versions of the router and of what it stands on."""
    from needle_router.cli.versions import show

    return show(sys.stdout, as_json=json)
