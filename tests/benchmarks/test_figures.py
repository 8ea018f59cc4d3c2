"""The benchmark's own sums: how a figure is read off a run, judged, shown, and compared with the recorded one."""

import json

import gate
import goals
import pytest
import run
import tables
from goals import Goal


def a_run(router, nginx=(), direct=()):
    """A run in which only the points at one and at 64 connections were measured."""
    figures = {"needle-router": list(router), "nginx": list(nginx), "direct": list(direct)}
    return {"forward": {"points": {"c1": figures, "c64": figures}}}


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        pytest.param(60.1, "not met", id="just above the limit"),
        pytest.param(60.0, "met", id="exactly at the limit"),
        pytest.param(45.1, "met", id="short of the stretch goal"),
        pytest.param(45.0, "stretch met", id="exactly at the stretch goal"),
        pytest.param(None, "not measured", id="not measured"),
    ],
)
def test_a_figure_that_should_be_low_is_judged_at_its_exact_limits(value, verdict):
    assert Goal("memory", 60, 45, lambda _: None, "MB").verdict(value) == verdict


@pytest.mark.parametrize(("value", "verdict"), [(3.99, "not met"), (4.0, "met"), (10.0, "stretch met")])
def test_a_figure_that_should_be_high_is_judged_at_its_exact_limits(value, verdict):
    assert Goal("times as many", 4, 10, lambda _: None, "x", higher=True).verdict(value) == verdict


def test_a_goal_without_a_stretch_is_only_met():
    assert Goal("errors", 0, None, lambda _: None).verdict(0) == "met"


def test_a_ratio_is_formed_within_each_round():
    run = a_run(
        router=[{"req/cpu_s": 10}, {"req/cpu_s": 50}, {"req/cpu_s": 30}],
        nginx=[{"req/cpu_s": 100}, {"req/cpu_s": 500}, {"req/cpu_s": 100}],
    )
    assert goals.ratios(run, "c64", "req/cpu_s", "nginx") == [0.1, 0.1, 0.3]
    assert goals.ratio("c64", "req/cpu_s", "nginx")(run) == 0.1


def test_a_proxy_that_was_not_there_gives_no_ratio():
    assert goals.ratio("c64", "req/cpu_s", "LiteLLM")(a_run([{"req/cpu_s": 10}])) is None


def test_what_is_added_to_a_latency_is_what_the_same_round_had_without_the_proxy():
    run = a_run(
        router=[{"p50_ms": 0.5}, {"p50_ms": 9.0}, {"p50_ms": 0.75}],
        direct=[{"p50_ms": 0.25}, {"p50_ms": 8.0}, {"p50_ms": 0.25}],
    )
    assert goals.added("p50_ms")(run) == 0.5


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0586, "0.0586"),
        (1.4567, "1.46"),
        (99.94, "99.9"),
        (100, "100"),
        (41234.5, "41,234"),
        (0, "0"),
        (0.00001, "0.0000"),
    ],
)
def test_figures_are_shown_with_three_digits(value, shown):
    assert tables.number(value) == shown


def test_a_spread_names_the_median_the_least_and_the_most():
    assert tables.spread([3, 1, 2, None]) == "2 (1-3)"


def test_only_what_stands_between_the_marks_is_written():
    recorded = json.loads(run.FIGURES.read_text())
    page = tables.written("above\n<!-- begin: bench -->\nold\n<!-- end: bench -->\nbelow\n", recorded)
    assert page.startswith("above\n<!-- begin: bench -->\nMeasured on ")
    assert page.endswith("|\n<!-- end: bench -->\nbelow\n")
    assert "old" not in page


def test_a_page_without_the_marks_is_an_error():
    with pytest.raises(ValueError, match="no part between"):
        tables.written("a page", {})


def test_the_page_shows_the_recorded_figures():
    page = run.PAGE.read_text("utf-8")
    assert tables.written(page, json.loads(run.FIGURES.read_text())) == page


def test_the_recorded_figures_answer_every_goal():
    recorded = json.loads(run.FIGURES.read_text())
    assert [goal.what for goal in goals.GOALS if goal.read(recorded) is None] == []


def test_the_gate_closes_beyond_its_slack_and_not_at_it():
    assert gate.regressions({"c64": 8.0}, {"c64": 10.0}, 0.25) == []
    assert gate.regressions({"c64": 8.0}, {"c64": 10.001}, 0.25) == ["c64"]


def test_the_gate_reads_the_recorded_figures():
    recorded = gate.costs(json.loads(run.FIGURES.read_text())["forward"]["points"])
    assert sorted(recorded) == ["c64"]
    assert all(cost > 1 for cost in recorded.values())
