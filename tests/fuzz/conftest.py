"""How long to search, and how much was searched."""

import pytest
from half_plus_two import channel, half_plus, publish, rest, server  # noqa: F401
from mutation import COUNTS


@pytest.fixture
def seconds(pytestconfig: pytest.Config) -> float:
    """The seconds for each search."""
    return float(pytestconfig.getoption("--fuzz-seconds"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the number of inputs that each search tried."""
    if COUNTS:
        terminalreporter.section("inputs tried")
        for target, count in sorted(COUNTS.items()):
            terminalreporter.write_line(f"{target}: {count:,}")
