"""Writes the parts of the documentation that the code already knows, so that the two cannot differ.

    python -m docs.generate            write them anew
    python -m docs.generate --check    say which are stale, exit 1 if any is

A part stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->`; everything around it is written by hand.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from needle_policies import reasons
from needle_router import errors
from needle_router.config.keys import ENV_ALIASES, KEYS
from needle_router.metrics import Metrics
from training import tables

ROOT = Path(__file__).resolve().parent.parent
#: A comment that heads a group, or a row, of the table of reasons.
_REASON_LINE = re.compile(r'^ +(?:# (?P<group>.+)\.|"(?P<slug>[a-z-]+)": )', re.MULTILINE)


def reason_table() -> str:
    """Every reason slug with its sentence, in the groups of the source."""
    source = inspect.getsource(reasons).partition("MappingProxyType(\n")[2]
    lines = []
    for match in _REASON_LINE.finditer(source):
        if match["group"]:
            lines += ["", f"**{match['group']}**", "", "| reason | meaning |", "|---|---|"]
        else:
            lines.append(f"| `{match['slug']}` | {reasons.REASONS[match['slug']]} |")
    return "\n".join(lines).strip()


def error_table() -> str:
    """Every error of the router: status, code and what happened."""
    rows = [
        f"| {kind.status} | `{kind.code}` | `{kind.type}` | {inspect.getdoc(kind)} |"
        for kind in sorted(every_error(errors.RouterError), key=lambda kind: (kind.status, kind.code))
        if kind is not errors.ConfigError
    ]
    return "\n".join(["| status | `code` | `type` | when |", "|---|---|---|---|", *rows]).replace("``", "`")


def every_error(kind: type[errors.RouterError]) -> Iterator[type[errors.RouterError]]:
    """`kind` and all its subclasses."""
    yield kind
    for child in kind.__subclasses__():
        yield from every_error(child)


def metric_table() -> str:
    """Every metric as it is scraped."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in families():
        labels = ", ".join(f"`{label}`" for label in metric_labels(metric.name))
        total = "_total" if metric.type == "counter" else ""
        rows.append(f"| `{metric.name}{total}` | {metric.type} | {labels or '-'} | {metric.documentation} |")
    return "\n".join(rows)


def families() -> list[Metric]:
    """The metric families of a router that has just started."""
    return list(_registry().collect())


def _registry() -> Any:
    return Metrics(version="", backend="").registry


def metric_labels(name: str) -> tuple[str, ...]:
    """The label names of a metric family."""
    return tuple(_registry()._names_to_collectors[name]._labelnames)


def example_page() -> str:
    """config.example.toml as it stands."""
    return f"```toml\n{(ROOT / 'config.example.toml').read_text('utf-8').strip()}\n```"


def key_table() -> str:
    """Every key with its variable, flag and default."""
    aliases = {path: name for name, path in ENV_ALIASES.items()}
    rows = ["| key | variable | flag | default |", "|---|---|---|---|"]
    for path, key in KEYS.items():
        names = " or ".join(f"`{name}`" for name in (key.env, aliases.get(path)) if name)
        flag = f"`{key.flag}`" if key.flag != "--set" else "-"
        rows.append(f"| `{path}` | {names} | {flag} | {shown(key.default)} |")
    return "\n".join(rows)


def shown(default: object) -> str:
    """A default value for a reader."""
    match default:
        case bool():
            return str(default).lower()
        case str() | int() | float():
            return f'`"{default}"`' if isinstance(default, str) else str(default).removesuffix(".0")
        case _:
            return "see below" if default else "empty"


def evaluation(table: Callable[[Any], str]) -> Callable[[], str]:
    """A table of the broad model's evaluation."""
    return lambda: table(json.loads((ROOT / "training/models/broad-evaluation.json").read_text("utf-8")))


#: file -> name of a part -> what stands in it.
PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"reasons": reason_table},
    "docs/configuration.md": {"keys": key_table, "example": example_page},
    "docs/http.md": {"errors": error_table},
    "docs/operations.md": {"metrics": metric_table},
    "training/README.md": {
        "kinds": evaluation(tables.kinds),
        "risk": evaluation(tables.risk),
        "speed": evaluation(tables.speed),
        "outside": evaluation(tables.outside),
    },
}


def generated(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """`text` with its parts written anew."""
    for name, write in parts.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        head, found, rest = text.partition(begin)
        tail = rest.partition(end)[2]
        if not found or not tail:
            raise ValueError(f"the markers of {name} are missing")
        text = f"{head}{begin}\n{write()}\n{end}{tail}"
    return text


def stale() -> list[str]:
    """The files whose generated parts are not what the code says."""
    return [name for name, parts in PARTS.items() if (text := _text(name)) != generated(text, parts)]


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    names = stale()
    if "--check" in arguments:
        sys.stdout.writelines(f"{name} is stale: run make docs\n" for name in names)
        return bool(names)
    for name in names:
        (ROOT / name).write_text(generated(_text(name), PARTS[name]), "utf-8")
        sys.stdout.write(f"wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
