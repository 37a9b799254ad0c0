"""Says at the end how fast the simulated worlds ran."""

import pytest


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
