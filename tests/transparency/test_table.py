"""The table of the reliability page and the tests are one and the same list."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"
PROXY = PAGE.read_text("utf-8").partition("\n## Proxy\n")[2].partition("\n## ")[0]


def defined(folder: Path) -> set[str]:
    """Every test function below a folder."""
    found = (re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.M) for file in folder.rglob("*.py"))
    return {name for names in found for name in names}


def test_every_test_in_the_table_exists():
    named = set(re.findall(r"`(test_\w+)`", PROXY))
    assert len(named) >= 38
    assert named - defined(TESTS) == set()


def test_every_numbered_test_of_the_proxy_is_in_the_table():
    numbered = {name for name in defined(TESTS / "transparency") if name.startswith("test_reliability_")}
    assert {name for name in numbered if f"`{name}`" not in PROXY} == set()
