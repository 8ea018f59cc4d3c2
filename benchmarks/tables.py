"""A run as Markdown, for docs/performance.md."""

import re

import goals

MARKS = "<!-- begin: bench -->", "<!-- end: bench -->"
#: Column, point, figure.
COLUMNS = (
    ("requests per CPU-second, c=64", "c64", "req/cpu_s"),
    ("CPU us a request, c=64", "c64", "cpu_us"),
    ("p50 c=1, ms", "c1", "p50_ms"),
    ("p99 c=1, ms", "c1", "p99_ms"),
    ("p50 c=8, ms", "c8", "p50_ms"),
    ("first event c=8, ms", "paced", "first_p50_ms"),
    ("chunk under way, ms", "paced", "transit_p50_ms"),
    ("memory, MB", "c64", "rss_mb"),
)


def number(value):
    """Three significant digits and no exponent; whole numbers from 100 on."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.4f}"


def spread(values):
    """median (least - most)"""
    found = [value for value in values if value is not None]
    if not found:
        return "-"
    return f"{number(goals.median(found))} ({number(min(found))}-{number(max(found))})"


def line(cells):
    return f"| {' | '.join(cells)} |"


def heads(*names):
    return [line(names), line(["---"] * len(names))]


def proxy_table(run):
    """One row a proxy: medians, with the spread of the rounds where it says most."""
    yield from heads("", *(name for name, *_ in COLUMNS))
    for name in run["forward"]["points"]["c64"]:
        version = run["forward"]["versions"].get(name, "")
        cells = [
            (spread if key == "req/cpu_s" else lambda v: number(goals.median(v)))(
                [row.get(key) for row in goals.rows_of(run, point, name)]
            )
            for _, point, key in COLUMNS
        ]
        yield line([f"{name} {version}".strip(), *cells])


def ways_table(run):
    """What the ways through the router cost."""
    yield from heads("through the router", "CPU us a request, c=64", "CPU us, c=1", "p50 c=1, ms")
    for way, points in run["forward"]["ways"].items():
        figures = ((points["c64"], "cpu_us"), (points["c1"], "cpu_us"), (points["c1"], "p50_ms"))
        yield line([way, *(number(goals.median(row[key] for row in rows)) for rows, key in figures)])


def goal_table(run):
    yield from heads("", "measured", "must", "stretch", "")
    for goal in goals.GOALS:
        value = goal.read(run)
        shown = number(value) if value is None else f"{number(value)}{goal.unit and ' ' + goal.unit}"
        yield line([goal.what, shown, goal.limit(goal.must), goal.limit(goal.stretch), goal.verdict(value)])


def markdown(run):
    machine = run["machine"]
    priority = ", at real-time priority" if machine.get("real_time") else ""
    shared = f"{machine['cores']} cores shared with other work{priority}, Python {machine['python']}"
    intro = f"Measured on {shared}; medians of {run['rounds']} rounds of {run['seconds']:g} s, spread in brackets."
    tables = (proxy_table(run), ways_table(run), goal_table(run))
    return "\n\n".join([intro, *("\n".join(table) for table in tables)])


def written(page, run):
    """`page` with the part between the marks written anew."""
    begin, end = MARKS
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no part between {begin} and {end}")
    return pattern.sub(lambda _: f"{begin}\n{markdown(run)}\n{end}", page)
