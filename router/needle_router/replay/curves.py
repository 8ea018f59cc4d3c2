"""The curves of a result as a picture: all checks, none, and without each of those that matter most."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from needle_router.calibrate.curve import pairs, risk_coverage
from needle_router.plots import risk_coverage_svg
from needle_router.plots.style import LIGHT, SERIES
from needle_router.replay.ablation import ALL_CHECKS, SCORE_ALONE, ablated, different, variants
from needle_router.replay.rows import Row, labelled

#: As many curves as there are colours.
MAX_CURVES = len(SERIES)
_VARIABLE = re.compile(r"var\(--(\w+)\)")
_FONTS = re.compile(r"system-ui,[^}]*sans-serif")
#: A renderer that asks no desktop for its font needs names; one of these is on most machines.
COMMON_FONTS = '"DejaVu Sans","Liberation Sans","Noto Sans",Arial,Helvetica,Roboto,"Segoe UI",sans-serif'
_DARK = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")


def curves(rows: Sequence[Row]) -> Mapping[str, tuple[tuple[float, float], ...]]:
    """Name -> (coverage, risk) pairs; of the single checks those that alone held back most calls."""
    found = different(ablated(rows, 0.0))
    single = [line for line in found if line.left_out not in (ALL_CHECKS, SCORE_ALONE)]
    single.sort(key=lambda line: -(line.stopped_wrong + line.stopped_right))
    names = [ALL_CHECKS, *(line.left_out for line in single[: MAX_CURVES - 2]), SCORE_ALONE]
    # Short names: the legend cuts long ones.
    return {name.replace("without", "w/o"): pairs(risk_coverage(labelled(rows, variants()[name]))) for name in names}


def picture(rows: Sequence[Row], *, title: str, target: float | None = None) -> str:
    """The plot as SVG."""
    return risk_coverage_svg(curves(rows), title=title, target=target)


def plain(svg: str) -> str:
    """The plot for a renderer without CSS variables: the light scheme, every colour by its value, fonts by name."""
    colours = {**LIGHT, **{f"s{index}": light for index, (light, _, _) in enumerate(SERIES)}}
    return _FONTS.sub(COMMON_FONTS, _VARIABLE.sub(lambda found: colours[found[1]], _DARK.sub("", svg)))
