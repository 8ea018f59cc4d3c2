"""A policy of somebody else's package: found by its entry point, checked like one of ours, named where it decides."""

import json
import os
import subprocess
import sys

import pytest

MODULE = """
from dataclasses import dataclass

from needle_policies import Decision, Plan, Planned


@dataclass(frozen=True)
class OfficeHours:
    until: int
    opens: int = 9
    kind: str = "office-hours"

    def contradictions(self):
        if self.opens >= self.until:
            yield f"opens: {self.opens} is not before {self.until}"

    def plan(self, features, situation):
        return Planned(Plan.FORWARD, "no-policy", self.kind)

    def judge(self, features, situation, evidence):
        return None
"""
CHECK = """
from needle_policies.testing import check_policy
from office import OfficeHours

check_policy(OfficeHours(until=17))
"""
REQUEST = {
    "model": "m",
    "messages": [{"role": "user", "content": "turn on the kitchen lights"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
}


@pytest.fixture
def office(cli, tmp_path):
    """The environment in which the package is installed."""
    site = tmp_path / "site"
    info = site / "office-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "office.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: office\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[needle_router.policies]\noffice-hours = office:OfficeHours\n")
    return {"PYTHONPATH": f"{cli.environment['PYTHONPATH']}{os.pathsep}{site}"}


def policy(**options):
    table = json.dumps([{"kind": "guards"}, {"kind": "office-hours", **options}, {"kind": "threshold"}])
    return ("--backend", "rust", "--model", "tiny", "--ledger", "off", "--set", f"policy={table}")


def test_it_decides_and_is_named(cli, office):
    code, out, err = cli(
        *("explain", "-", "--json", "--upstream", "http://127.0.0.1:9/v1", *policy(until=17)),
        stdin=json.dumps(REQUEST).encode(),
        **office,
    )
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert (shown["route"], shown["reason"], shown["policy"]) == ("upstream", "no-policy", "office-hours")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"until": 17, "hours": 3}, "policy[1].hours: unknown option of office-hours"),
        ({"until": 0}, "policy[1].until: 0 is not a whole number of at least 1"),
        ({"until": 9}, "policy[1].opens: 9 is not before 9"),
        ({}, "policy[1]: no office-hours can be made of these options: "),
    ],
)
def test_its_options_are_checked_with_everything_else(cli, office, options, problem):
    code, out, err = cli("config", "check", *policy(**options), **office)
    assert (code, out) == (2, "")
    assert problem in err


def test_without_the_package_its_kind_is_unknown(cli):
    code, _, err = cli("config", "check", *policy(until=17))
    assert code == 2
    assert "policy[1].kind: unknown kind 'office-hours'" in err


def test_the_check_for_policies_takes_it(cli, office, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHECK], env=cli.environment | office, cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
