"""Plots are one SVG element that needs nothing from outside, says in words what it shows, and trusts no name."""

import re
import xml.etree.ElementTree as ET

import pytest

from needle_router.plots import STYLE, Interval, columns_svg, intervals_svg, lines_svg, risk_coverage_svg
from needle_router.plots.frame import Axis, plain, round_top

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('x')</script>\"\x00\x1b[31m\ud800"
CURVES = {"all": [(0.1, 0.0), (0.5, 0.02), (0.9, 0.08)], "no grounding": [(0.2, 0.01), (1.0, 0.2)]}


def parsed(text):
    return ET.fromstring(text.encode("utf-8"))


def texts(root):
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


def every_plot(name=HOSTILE, **options):
    return [
        risk_coverage_svg({name: [(0.5, 0.1)], "b": []}, title=name, **options),
        columns_svg([name], {name: [1], "b": [2]}, title=name, label=name, **options),
        intervals_svg([Interval(name, 0.1, 0.2, 0.3, name)], title=name, label=name, **options),
    ]


@pytest.mark.parametrize("plot", range(3))
@pytest.mark.parametrize("standalone", [True, False])
def test_a_hostile_name_is_text_and_the_plot_stays_well_formed(plot, standalone):
    text = every_plot(standalone=standalone)[plot]
    root = parsed(text)
    assert root.tag == f"{SVG}svg"
    assert "<script" not in text
    assert "script" in "".join(texts(root))
    assert not re.search(r"[\x00-\x08\x1b]", text)


@pytest.mark.parametrize("plot", range(3))
def test_nothing_is_loaded_and_no_attribute_holds_style_or_script(plot):
    text = every_plot("f")[plot]
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|href|\bstyle=|\bon\w+=", text)


@pytest.mark.parametrize("plot", range(3))
def test_a_plot_has_a_name_and_a_description_for_those_who_do_not_see_it(plot):
    root = parsed(every_plot("f")[plot])
    assert root.attrib["role"] == "img"
    assert [root[0].tag, root[1].tag] == [f"{SVG}title", f"{SVG}desc"]
    assert root[0].text == "f"
    assert "%" in root[1].text or "3" in root[1].text


@pytest.mark.parametrize("plot", range(3))
def test_a_file_brings_its_style_and_a_page_brings_it_once(plot):
    assert STYLE in every_plot("f")[plot]
    assert "<style>" not in every_plot("f", standalone=False)[plot]
    assert "prefers-color-scheme:dark" in STYLE


def test_a_curve_goes_through_its_points():
    root = parsed(risk_coverage_svg({"all": [(0.0, 0.0), (0.5, 0.1), (1.0, 0.2)]}))
    (line,) = root.iter(f"{SVG}polyline")
    assert line.attrib["points"] == "58,254 257,153 456,52"


def test_each_curve_has_a_line_and_its_name_in_the_legend():
    root = parsed(risk_coverage_svg(CURVES, target=0.05))
    assert [line.attrib["class"] for line in root.iter(f"{SVG}polyline")] == ["l0", "l1"]
    assert {"all", "no grounding", "5 %"} <= set(texts(root))
    assert "all: 8 % at 90 %; no grounding: 20 % at 100 %" in root[1].text


def test_the_seventh_curve_has_the_first_colour_again():
    root = parsed(risk_coverage_svg({str(index): CURVES["all"] for index in range(7)}))
    assert [line.attrib["class"] for line in root.iter(f"{SVG}polyline")][-1] == "l0"


def test_a_curve_of_one_point_is_a_dot_and_none_at_all_says_so():
    root = parsed(risk_coverage_svg({"all": [(0.5, 0.0)]}))
    assert len(list(root.iter(f"{SVG}circle"))) == 1
    assert "no data yet" in texts(parsed(risk_coverage_svg({})))
    assert "no data yet" in texts(parsed(columns_svg([], {"a": []}, title="t", label="l")))


def test_values_outside_of_an_axis_are_drawn_at_its_end():
    text = lines_svg({"a": [(-1, -1), (2, 2)]}, x=Axis("x"), y=Axis("y"), title="t", description="d")
    (line,) = parsed(text).iter(f"{SVG}polyline")
    assert line.attrib["points"] == "58,254 456,52"


def test_columns_are_stacked_from_the_bottom_and_tell_their_values():
    root = parsed(columns_svg(["Mon", "Tue"], {"local": [10, 0], "upstream": [30, 40]}, title="t", label="requests"))
    parts = list(root.iter(f"{SVG}rect"))[1:-2]  # without the page and the two of the legend
    assert [part[0].text for part in parts] == ["Mon, local: 10", "Mon, upstream: 30", "Tue, upstream: 40"]
    heights = [float(part.attrib["height"]) for part in parts]
    assert heights == [50.5, 151.5, 202.0]
    assert root[1].text == "requests. Mon: 40; Tue: 40."


def test_many_columns_have_few_labels():
    root = parsed(columns_svg([f"d{n}" for n in range(90)], {"a": [1] * 90}, title="t", label="l"))
    assert len([text for text in texts(root) if re.fullmatch(r"d\d+", text)]) == 6


def test_an_interval_is_told_with_its_bounds():
    root = parsed(intervals_svg([Interval("f", 0.8, 0.9, 0.95, "90 of 100")], title="t", label="l"))
    assert root[1].text == "l. f: 90.0%, between 80.0% and 95.0% 90 of 100."
    assert texts(root)[-3:-1] == ["f", "90 of 100"]


@pytest.mark.parametrize(
    ("high", "ticks"),
    [(1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.05, [0, 0.01, 0.02, 0.03, 0.04, 0.05]), (70, [0, 20, 40, 60])],
)
def test_ticks_stand_at_round_values(high, ticks):
    assert Axis("x", high=high).ticks() == pytest.approx(ticks)


@pytest.mark.parametrize(("values", "top"), [([], 5), ([5], 5), ([5.1], 6), ([99], 100), ([1234], 1500), ([0.03], 5)])
def test_an_axis_ends_at_a_round_value_that_holds_everything(values, top):
    assert round_top(values, least=5) == pytest.approx(top)


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (1500, "1,500"), (0.25, "0.25")])
def test_a_plain_number_is_short(value, text):
    assert plain(value) == text
