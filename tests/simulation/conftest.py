"""Reports the speed of simulated worlds at the end, and lowers the priority of their tests."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _gives_way() -> Iterator[None]:
    """Runs simulations at low priority: their time is virtual, so tests of real processes get the CPU first."""
    if os.geteuid() != 0:  # only root can raise a priority again
        yield
        return
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, 15)
    yield
    os.setpriority(os.PRIO_PROCESS, 0, before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    events = seconds = runs = 0.0
    for report in terminalreporter.stats.get("passed", []):
        properties = dict(report.user_properties)
        if "simulated_events" in properties:
            events += properties["simulated_events"]
            seconds += properties["simulated_cpu_s"]
            runs += properties["simulated_runs"]
    if seconds:
        rate = f"{events / seconds:,.0f} events/s/core, {1000 * seconds / runs:.1f} ms a run"
        terminalreporter.write_line(f"simulation: {runs:,.0f} runs, {events:,.0f} events, {rate}")
