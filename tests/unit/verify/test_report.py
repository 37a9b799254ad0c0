"""Reports: counts, sentences and operations, for people and for machines."""

import json

from penstock.verify.findings import Kind, Severity
from penstock.verify.rules import Rules
from tests.unit.verify.story import P, Story


def lossy(records: int) -> Story:
    story = Story()
    story.invoke("a", "send", [[P, None, n] for n in range(records)], pid=7, epoch=2, client="librdkafka 2.16.1").ok(
        [[P, n, n] for n in range(records)]
    )
    story.poll("r", (records - 1, records - 1))
    return story


def test_a_clean_report_says_how_much_it_saw() -> None:
    story = Story()
    story.send("a", (0, "x"), (1, "y"))
    story.begin_send("a", "z").info("timed out")
    story.begin_send("a", "w").fail("refused")
    story.poll("r", (0, "x"), (1, "y"))
    story.poll("s", (0, "x"), (1, "y"))
    report = story.report()
    counts = report.counts
    assert (counts.operations, counts.ok, counts.failed, counts.unknown) == (5, 3, 1, 1)
    assert (counts.records_sent, counts.records_acked, counts.records_read, counts.records_polled) == (4, 2, 2, 4)
    assert (counts.processes, counts.partitions, counts.transactions) == (3, 1, 0)
    assert report.text().endswith("\nclean")
    assert json.loads(report.json())["is_clean"] is True


def test_findings_are_counted_all_and_kept_a_few() -> None:
    report = lossy(1000).report(Rules(findings_per_kind_max=7))
    assert report.anomalies == {Kind.LOST_WRITE: 999}
    assert len(report.findings) == 7
    text = report.text(findings_per_kind_max=3)
    assert "FAILS  lost-write: 999" in text
    assert "… and 996 more" in text
    assert text.endswith("999 anomalies")


def test_a_finding_names_its_operations() -> None:
    report = lossy(2).report()
    (finding,) = report.findings
    assert finding.severity is Severity.FAILS
    assert finding.partition == P
    assert [str(operation) for operation in finding.operations] == ["send 0 of a (ok)", "poll 2 of r (ok)"]
    found = json.loads(report.json())["findings"][0]
    assert found["kind"] == "lost-write"
    assert found["operations"][0] == {
        "i": 0,
        "completed": 1,
        "p": "a",
        "f": "send",
        "type": "ok",
        "pid": 7,
        "epoch": 2,
        "client": "librdkafka 2.16.1",
    }
    assert found["operations"][1]["i"] == 2


def test_the_reader_that_is_named_is_the_one_that_read() -> None:
    """Two polls span the offset of an aborted record; one of them correctly left it out."""
    story = Story()
    story.send("a", (0, "x"))
    story.begin_txn("b", (P, "y")).fail("aborted")
    story.send("a", (3, "z"))
    story.poll("good", (0, "x"), (3, "z"))
    story.poll("dirty", (0, "x"), (1, "y"), (3, "z"))
    (finding,) = story.report().findings
    assert [operation.process for operation in finding.operations] == ["b", "dirty"]
