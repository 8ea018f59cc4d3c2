"""Plots as SVG text, for pages and files that must work without a network.

Each function takes numbers and names and returns one `<svg>` element: no script, no outside reference, no style
attribute, so that a page with a strict content security policy can hold it. With `standalone` the element brings its
own style sheet, light and dark, and can be written to a file; without, the page brings `STYLE`. Names may be hostile.
"""

from needle_router.plots.columns import columns_svg
from needle_router.plots.intervals import Interval, intervals_svg
from needle_router.plots.lines import lines_svg, risk_coverage_svg
from needle_router.plots.style import STYLE

__all__ = ["STYLE", "Interval", "columns_svg", "intervals_svg", "lines_svg", "risk_coverage_svg"]
