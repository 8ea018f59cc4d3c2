"""`needle-router canary` as a process."""

import json

import pytest

from needle_router.calibrate.trials import Terms
from needle_router.records import DecisionRecord
from needle_router.standings import Standings
from needle_router.standings.resets import resets_path

TERMS = Terms(0.1, 0.05, 200, (0.1, 0.9))


@pytest.fixture
def state(tmp_path):
    """A state with a tool at its second step and one in alarm, beside the ledger that `cli` names."""
    path = tmp_path / "decisions.db.canary.json"
    standings = Standings(TERMS, path)
    standings.start()
    for tool, comparison, count in (("get_weather", "agree", 60), ("set_light", "name-differs", 10)):
        for _ in range(count):
            standings.note(
                DecisionRecord(
                    time_s=1.0,
                    route="upstream",
                    reason="canary-rest",
                    tools_called=(tool,),
                    comparison=comparison,
                    fingerprint="ab12",
                    answerable=True,
                )
            )
    standings.close()
    return path


def canary(cli, *arguments):
    return cli("canary", "--ledger", "decisions.db", *arguments)


def test_it_says_how_each_tool_stands(cli, state):
    code, out, err = canary(cli)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "set_light (ab12): ALARM, only watched; 10 of 10 compared calls differ from the upstream's",
        "get_weather (ab12): step 2 of 2, share 0.9; 0 of 60 compared calls differ from the upstream's",
    ]


def test_json_holds_the_same(cli, state):
    code, out, _ = canary(cli, "--json")
    assert code == 0
    assert json.loads(out)["tools"][0] == {
        "fingerprint": "ab12",
        "tool": "set_light",
        "step": 1,
        "steps": 2,
        "share": 0.0,
        "compared": 10,
        "wrong": 10,
        "alarm": True,
    }


@pytest.mark.parametrize("asked", ["set_light", "*"])
def test_a_reset_is_left_for_the_router(cli, state, asked):
    code, out, err = canary(cli, "--reset", asked)
    assert (code, out) == (0, "")
    assert "takes the reset up with SIGHUP" in err
    assert json.loads(resets_path(state).read_text()) == {"tools": [asked]}
    again = Standings(TERMS, state)
    again.start()
    again.close()
    assert again.alarms == 0


def test_a_tool_that_is_in_no_alarm_cannot_be_reset(cli, state):
    code, _, err = canary(cli, "--reset", "get_weather")
    assert (code, err) == (2, "needle-router: get_weather is in no alarm; in alarm: set_light\n")
    assert not resets_path(state).exists()


def test_without_a_state_it_says_what_it_takes(cli):
    code, out, _ = canary(cli)
    assert code == 0
    assert out.startswith("no comparison was counted yet: a canary needs max_error")
    code, _, err = canary(cli, "--reset", "*")
    assert (code, err) == (2, "needle-router: there is no alarm; in alarm: nothing\n")


def test_without_a_ledger_no_state_is_kept(cli):
    code, _, err = cli("canary", "--ledger", "off")
    assert (code, err) == (
        2,
        "needle-router: the ledger is off, so the state of the canary is not kept: see /-/status.json\n",
    )


def test_a_broken_state_is_an_error(cli, state):
    state.write_text("{")
    code, _, err = canary(cli)
    assert code == 1
    assert "decisions.db.canary.json cannot be read: Expecting property name" in err
