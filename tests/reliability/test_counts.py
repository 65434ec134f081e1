"""How the suites of the proof get their counts."""

import pytest

from tests.reliability.counts import (
    FIRST_VARIABLE,
    SCALE_VARIABLE,
    SEED_VARIABLE,
    Campaign,
    count_of,
)


@pytest.fixture(autouse=True)
def _no_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (SCALE_VARIABLE, SEED_VARIABLE, FIRST_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(("scale", "count"), [("", 300), ("tenth", 10_000), ("large", 100_000)])
def test_the_scale_chooses_the_count(
    monkeypatch: pytest.MonkeyPatch, scale: str, count: int
) -> None:
    monkeypatch.setenv(SCALE_VARIABLE, scale)
    assert count_of(300, 100_000) == count


def test_a_tenth_is_never_less_than_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SCALE_VARIABLE, "tenth")
    assert count_of(20, 100) == 20


def test_a_failing_seed_prints_the_line_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def one(seed: int) -> None:
        ran.append(seed)
        assert seed != 3

    campaign = Campaign("tests/reliability/test_x.py::test_y", "seeds", 5)
    with pytest.raises(AssertionError) as failed:
        campaign.run(one)
    (line,) = failed.value.__notes__
    assert (ran, campaign.done) == ([0, 1, 2, 3], 3)
    assert line.startswith("RELIABILITY_SEED=3 ")
    assert "tests/reliability/test_x.py::test_y" in line
    monkeypatch.setenv(SEED_VARIABLE, "3")
    assert list(campaign.seeds()) == [3]


def test_a_campaign_may_begin_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FIRST_VARIABLE, "100")
    assert Campaign("test", "seeds", 3).seeds() == range(100, 103)
