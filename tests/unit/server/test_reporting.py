"""Reports of cores are logged: a line each, or one line for all reports of a kind within a moment."""

import asyncio
import logging
from typing import TypeAlias

import pytest

from penstock.model.report import NAMED_MAX, Kind, Level, Value
from penstock.server.loop.reporting import GATHERED_S, Reporter

PLAIN = Kind("plain", "Node {node} leads.", "Nothing.")
MANY = Kind("many", "Follows {leader} for {partition}.", "Nothing.", of_each="partition", alike=("leader",))
QUIET = Kind("quiet", "A detail of {node}.", "Nothing.", Level.DEBUG)


Told: TypeAlias = tuple[Kind, dict[str, Value]]


def reported(caplog: pytest.LogCaptureFixture, *reports: Told) -> list[str]:
    async def story() -> None:
        reporter = Reporter(logging.getLogger("penstock.reporting-test"))
        for kind, fields in reports:
            reporter.tell(kind(**fields))
        await asyncio.sleep(2 * GATHERED_S)

    with caplog.at_level(logging.INFO, "penstock.reporting-test"):
        asyncio.run(story())
    return [record.getMessage() for record in caplog.records]


def test_a_report_is_a_line_with_its_event_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    assert reported(caplog, (PLAIN, {"node": 2})) == ["Node 2 leads."]
    (entry,) = caplog.records
    assert (entry.event, entry.fields) == ("plain", {"node": 2})  # type: ignore[attr-defined]
    assert entry.levelno == logging.INFO


def test_a_detail_is_not_logged_unless_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    assert reported(caplog, (QUIET, {"node": 2})) == []


def test_a_thousand_of_a_kind_are_some_lines(caplog: pytest.LogCaptureFixture) -> None:
    many: list[Told] = [(MANY, {"leader": index % 2, "partition": f"t-{index}"}) for index in range(1_000)]
    first, second = reported(caplog, *many)
    assert first.startswith("Follows 0 for t-0. Likewise: t-2, t-4")
    assert first.endswith(f"and {499 - NAMED_MAX} more.")
    assert second.startswith("Follows 1 for t-1. Likewise: t-3")
    assert [entry.fields["count"] for entry in caplog.records] == [500, 500]  # type: ignore[attr-defined]
