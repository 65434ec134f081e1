"""The proof's suites: their marker, their scale, and what they tell at the end of a run."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.reliability.counts import SCALE_VARIABLE, Campaign, NewCampaign, Scale, count_of, scale

HERE = Path(__file__).parent
TOLD = "reliability"
TIMEOUTS_S = {Scale.SMALL: 600, Scale.TENTH: 24 * 3600, Scale.LARGE: 14 * 24 * 3600}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where this folder is named on the command line; elsewhere the variable says it."""
    group = parser.getgroup("reliability")
    group.addoption("--large", action="store_true", help="the large counts: days")
    group.addoption("--tenth", action="store_true", help="a tenth of the large counts")


def pytest_configure(config: pytest.Config) -> None:
    for name in (Scale.LARGE, Scale.TENTH):
        if config.getoption(f"--{name}", default=False):
            os.environ[SCALE_VARIABLE] = name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if scale() is Scale.SMALL:
        long = [item for item in items if HERE in item.path.parents and _is_long(item)]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    timeout = pytest.mark.timeout(TIMEOUTS_S[scale()])
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.reliability)
            item.add_marker(timeout)


def _is_long(item: pytest.Item) -> bool:
    """Whether it has no small count: then it runs at a tenth and at the large counts only."""
    return item.get_closest_marker("torture") is not None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = [
        str(value)
        for kind in ("", "error")  # the fixture tells after the test: in its teardown's report
        for report in terminalreporter.getreports(kind)
        for name, value in report.user_properties
        if name == TOLD
    ]
    if told:
        terminalreporter.section(f"reliability: {scale()} counts")
        for line in sorted(told):
            terminalreporter.write_line(line)


@pytest.fixture
def campaign(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Iterator[NewCampaign]:
    """Makes the test's campaign; its count and time are told when it has ended."""
    made: list[Campaign] = []

    def make(*, small: int, large: int, unit: str) -> Campaign:
        made.append(Campaign(request.node.nodeid, unit, count_of(small, large)))
        return made[-1]

    yield make
    for one in made:
        record_property(TOLD, one.told())
