"""One line for every tenth, however the bytes come."""

import logging

import pytest

from needle_router.supply.progress import Tenths, logged_progress


@pytest.mark.parametrize(
    "total, pieces, told",
    [
        pytest.param(100, [10] * 10, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100], id="tenth by tenth"),
        pytest.param(100, [9, 1, 9, 1], [10, 20], id="only when one is reached"),
        pytest.param(100, [35, 65], [30, 100], id="some left out by large pieces"),
        pytest.param(100, [100], [100], id="at once"),
        pytest.param(100, [50, -50, 30, 30], [50, 60], id="none twice when it starts over"),
        pytest.param(100, [150], [100], id="more than announced"),
        pytest.param(None, [10, 10], [], id="unknown size"),
        pytest.param(0, [10], [], id="empty"),
    ],
)
def test_tenths(total, pieces, told):
    tenths = Tenths(total)
    assert [percent for piece in pieces if (percent := tenths.advance(piece)) is not None] == told


def test_the_class_for_the_hub_logs_and_draws_nothing(caplog, capfd):
    caplog.set_level(logging.INFO, "needle_router.supply")
    with logged_progress()(total=40, initial=10, desc="a.whl", unit="B", unit_scale=True, disable=False) as bar:
        for _ in range(3):
            bar.update(10)
    assert [record.getMessage() for record in caplog.records] == ["a.whl: 50 %", "a.whl: 70 %", "a.whl: 100 %"]
    assert capfd.readouterr() == ("", "")
