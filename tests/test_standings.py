"""The canary's state: fed by comparisons, kept over restarts and reloads, reset by an operator."""

import json
import logging
import stat
import time

import pytest

from needle_policies import Standing
from needle_router.calibrate.trials import Terms
from needle_router.records import DecisionRecord
from needle_router.standings import Standings
from needle_router.standings.resets import ask_for, resets_path
from needle_router.standings.standings import LIMIT, read_trials

TERMS = Terms(0.1, 0.05, 200, (0.1, 0.9))
DEADLINE_S = 10


def record(comparison="agree", *, tools=("f",), fingerprint="ab", answerable=True):
    return DecisionRecord(
        time_s=1.0,
        route="upstream",
        reason="canary-rest",
        tools_called=tools,
        comparison=comparison,
        fingerprint=fingerprint,
        answerable=answerable,
    )


def fed(standings, *comparisons, **changes):
    for comparison in comparisons:
        standings.note(record(comparison, **changes))
    return standings


def until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


WRONG = ("arguments-differ",) * 10


def test_agreement_promotes_and_disagreement_raises_an_alarm():
    standings = fed(Standings(TERMS), *("agree",) * 60)
    assert standings.of("ab", ("f", "g")) == {"f": Standing(level=1)}
    assert standings.promotions == 1
    fed(standings, *("upstream-none", "name-differs", "arguments-differ", "local-missed") * 8)
    assert standings.of("ab", ("f",)) == {"f": Standing(alarm=True)}
    assert standings.alarms == 1


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"answerable": False}, id="calls that nobody would have answered here"),
        pytest.param({"fingerprint": ""}, id="nothing is known of the circumstances"),
        pytest.param({"tools": ()}, id="no call"),
    ],
)
def test_what_is_no_evidence_is_not_counted(changes):
    assert fed(Standings(TERMS), *WRONG, **changes).shown() == []


def test_without_a_test_nothing_is_counted_or_written(tmp_path):
    standings = Standings(None, tmp_path / "state.json")
    standings.start()
    fed(standings, *WRONG)
    standings.close()
    assert standings.shown() == []
    assert list(tmp_path.iterdir()) == []


def test_a_tool_is_on_trial_for_each_fingerprint_by_itself():
    standings = fed(Standings(TERMS), *WRONG)
    assert standings.of("cd", ("f",)) == {}
    assert standings.of("ab", ("f",)) == {"f": Standing(alarm=True)}


def test_each_of_several_called_tools_has_its_share_in_the_outcome():
    standings = fed(Standings(TERMS), *WRONG, tools=("f", "g", "f"))
    assert standings.of("ab", ("f", "g")) == {"f": Standing(alarm=True), "g": Standing(alarm=True)}
    assert [row["compared"] for row in standings.shown()] == [10, 10]


def test_an_alarm_is_told_with_its_figures_and_the_way_back(caplog):
    fed(Standings(TERMS), *WRONG)
    assert "alarm for f (fingerprint ab): " in caplog.text
    assert "until `needle-router canary --reset`" in caplog.text
    assert caplog.text.count("alarm for") == 1


def test_a_promotion_is_told(caplog):
    with caplog.at_level(logging.INFO):
        fed(Standings(TERMS), *("agree",) * 60)
    assert "f (fingerprint ab) takes step 2 of its canary" in caplog.text


def test_the_state_outlives_a_restart_and_is_the_owner_s_alone(tmp_path):
    path = tmp_path / "new" / "state.json"
    first = Standings(TERMS, path)
    first.start()
    fed(first, *("agree",) * 60)
    fed(first, *WRONG, tools=("g",))
    first.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = Standings(TERMS, path)
    second.start()
    assert second.of("ab", ("f", "g")) == {"f": Standing(level=1), "g": Standing(alarm=True)}
    assert second.shown() == [*first.shown()]
    second.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


def test_an_alarm_is_on_the_disk_before_anything_else_happens(tmp_path):
    path = tmp_path / "state.json"
    standings = Standings(TERMS, path)
    standings.start()
    fed(standings, *WRONG)
    # Not closed: as after kill -9.
    until(lambda: path.exists() and any(trial.alarm.raised for trial in read_trials(path).values()))
    standings.close()


def test_a_state_that_cannot_be_read_begins_anew_and_is_told(tmp_path, caplog):
    path = tmp_path / "state.json"
    for content in ("{", "[]", '{"version": 9}', '{"version": 1, "terms": {}, "trials": []}', "[" * 100_000):
        path.write_text(content)
        standings = Standings(TERMS, path)
        standings.start()
        assert standings.of("ab", ("f",)) == {}
        standings.close()
    assert caplog.text.count("cannot be read, every canary begins anew") == 5


def test_a_file_where_the_folder_should_be_costs_the_state_alone(tmp_path, caplog):
    (tmp_path / "taken").write_text("")
    standings = Standings(TERMS, tmp_path / "taken" / "state.json")
    standings.start()
    fed(standings, *WRONG)
    standings.close()
    assert standings.alarms == 1
    assert caplog.text.count("the canary's state cannot be written") == 1


def test_another_router_goes_on_with_the_trials_and_the_file(tmp_path):
    path = tmp_path / "state.json"
    old = Standings(TERMS, path)
    old.start()
    fed(old, *("agree",) * 60)
    new = Standings(TERMS, path)
    new.adopt(old)
    new.start()
    # A request that was inside the old router.
    fed(old, *WRONG, tools=("g",))
    old.close()
    assert new.of("ab", ("f", "g")) == {"f": Standing(level=1), "g": Standing(alarm=True)}
    assert old.of("ab", ("g",)) == {"g": Standing(alarm=True)}
    fed(new, *WRONG, tools=("h",))
    new.close()
    assert {group.tool for group in read_trials(path)} == {"f", "g", "h"}


def test_a_router_with_another_file_does_not_go_on(tmp_path):
    old = fed(Standings(TERMS, tmp_path / "one.json"), *WRONG)
    new = Standings(TERMS, tmp_path / "two.json")
    new.adopt(old)
    assert new.shown() == []


def test_a_reset_is_taken_up_once_and_begins_a_new_trial(tmp_path):
    path = tmp_path / "state.json"
    standings = Standings(TERMS, path)
    standings.start()
    for tool in ("f", "g"):
        fed(standings, *WRONG, tools=(tool,))
    ask_for(path, ["f"])
    standings.take_resets()
    assert standings.of("ab", ("f", "g")) == {"f": Standing(), "g": Standing(alarm=True)}
    assert not resets_path(path).exists()
    fed(standings, *WRONG)
    standings.take_resets()
    assert standings.of("ab", ("f",)) == {"f": Standing(alarm=True)}
    standings.close()


def test_a_reset_is_taken_up_at_the_start_too(tmp_path):
    path = tmp_path / "state.json"
    first = Standings(TERMS, path)
    first.start()
    fed(first, *WRONG)
    first.close()
    ask_for(path, ["f"])
    ask_for(path, ["*"])
    assert json.loads(resets_path(path).read_text()) == {"tools": ["*", "f"]}
    second = Standings(TERMS, path)
    second.start()
    assert second.alarms == 0
    second.close()
    third = Standings(TERMS, path)
    third.load()
    assert third.of("ab", ("f",)) == {"f": Standing()}


def test_what_is_no_request_for_a_reset_is_passed_over(tmp_path):
    path = tmp_path / "state.json"
    standings = fed(Standings(TERMS, path), *WRONG)
    for content in ("{", "[]", '{"tools": 3}', '{"tools": [3]}'):
        resets_path(path).write_text(content)
        standings.take_resets()
    assert standings.alarms == 1


def test_the_number_of_trials_is_bounded_and_alarms_are_forgotten_last():
    standings = fed(Standings(TERMS), *WRONG, fingerprint="alarmed")
    for number in range(LIMIT + 50):
        fed(standings, "agree", fingerprint=str(number))
    assert len(standings.shown(most=10**6)) == LIMIT
    assert standings.alarms == 1
