"""Plays every scene with every client, through a real router, and says what came of it.

    python -m tests.clients.run [WORD ...] [--write-docs]

WORD chooses clients by their titles. Each scene has a router, a scripted engine and an upstream of its own, on
loopback, and a client in a process of its own, whose environment holds nothing but what it needs: a key that is none,
every telemetry off, and a proxy on which nobody listens for whatever would leave the machine. `make test-clients` makes
the environments of the clients and starts this.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tests.clients.cast import CAST, ENVIRONMENTS, HERE, Client
from tests.clients.scenes import KEY, Report, Scene, upstream
from tests.router.support import running
from tests.servers import free_port

DEADLINE_S = 90.0
PAGE = HERE.parents[1] / "docs" / "clients.md"
BEGIN, END = "<!-- begin: played -->", "<!-- end: played -->"
Results = dict[str, list[str]]


def environment(base_url: str, home: str) -> dict[str, str]:
    """All that a client is told."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    return {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "TMPDIR": home,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENAI_BASE_URL": f"{base_url}/v1",
        "OPENAI_API_KEY": KEY,
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1",
        "DO_NOT_TRACK": "1",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


async def perform(client: Client, scene: Scene, base_url: str, home: str) -> Report:
    """What the client's application saw; raises RuntimeError with the end of its words when it fails."""
    process = await asyncio.create_subprocess_exec(
        *client.command(),
        scene.name,
        scene.says,
        cwd=home,
        env=environment(base_url, home),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"exit {process.returncode}: {err.decode()[-2000:]}")
    return json.loads(out.splitlines()[-1])


async def play(client: Client, scene: Scene) -> list[str]:
    """Play one scene; gives its faults."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        async with running(Path(folder), scene.script(client.answer_tool), upstream=upstream()) as router:
            try:
                report = await perform(client, scene, router.url, home)
            except (RuntimeError, TimeoutError) as error:
                return [f"{type(error).__name__} {error}", *scene.faults({}, router)]
            return scene.faults(report, router)


async def season(clients: list[Client]) -> Results:
    """Play all scenes, one after the other; gives the faults by client and scene."""
    results: Results = {}
    for client in clients:
        for scene in client.scenes:
            faults = await play(client, scene)
            results[f"{client.title}/{scene.name}"] = faults
            print(f"{'FAIL' if faults else 'ok  '} {client.title}: {scene.name}", flush=True)
            for fault in faults:
                print(f"     {fault}", flush=True)
    return results


def table(results: Results) -> str:
    """The results as a table of the documentation."""
    lines = [
        "| client | versions | how | tool loop | stream | structured output | remarks |",
        "|---|---|---|---|---|---|---|",
    ]
    for client in CAST:
        marks = ["failed" if results[f"{client.title}/{scene.name}"] else "ok" for scene in client.scenes]
        lines.append(f"| {' | '.join((client.title, client.versions(), client.does, *marks, client.remarks))} |")
    return "\n".join(lines)


def write_page(results: Results) -> None:
    """Put the table between its markers."""
    text = PAGE.read_text("utf-8")
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{PAGE.name} has no place for the results: {BEGIN} and {END} are missing")
    part = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    PAGE.write_text(part.sub(lambda _: f"{BEGIN}\n{table(results)}\n{END}", text), "utf-8")


def main() -> int:
    """Exit status 0 when every scene was played well."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.run", description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="play with clients whose title holds a word only")
    parser.add_argument("--write-docs", action="store_true", help="write the results into docs/clients.md")
    options = parser.parse_args()
    chosen = [c for c in CAST if not options.words or any(w.lower() in c.title.lower() for w in options.words)]
    if not chosen:
        parser.error(f"no client is called that; there are: {', '.join(client.title for client in CAST)}")
    if options.write_docs and len(chosen) < len(CAST):
        parser.error("--write-docs records a run with every client")
    for file in (HERE / "node").glob("*.mjs"):
        # Node looks for packages where the file lies.
        shutil.copy(file, ENVIRONMENTS / "node" / file.name)
    results = asyncio.run(season(chosen))
    failed = sum(map(bool, results.values()))
    print(f"{len(results) - failed} of {len(results)} scenes played well")
    if options.write_docs:
        write_page(results)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
