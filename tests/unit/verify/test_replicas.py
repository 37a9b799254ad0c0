"""Replicas: equal logs are equal, wherever they start; any difference below the high watermark is found."""

from dataclasses import replace
from random import Random

import pytest

from penstock.verify.checks.replicas import Batch, ReplicaLog, Row, find_compacted_divergence, find_divergence
from penstock.verify.findings import Finding, Kind
from tests.unit.verify.story import P, Story


def batches(random: Random, count: int = 30) -> list[Batch]:
    found, offset = [], 0
    for _ in range(count):
        end = offset + random.randint(1, 9)
        found.append(Batch(offset, end, random.randbytes(8)))
        offset = end
    return found


def compare(logs: dict[str, list[Batch]], high_watermark: int, start: int = 0) -> list[Finding]:
    return list(find_divergence(P, {name: ReplicaLog(start, log) for name, log in logs.items()}, high_watermark))


def test_equal_replicas_are_equal_wherever_they_begin_and_end() -> None:
    log = batches(Random(1))
    end = log[20].end_offset
    replicas = {
        "a": ReplicaLog(0, log),
        "b": ReplicaLog(log[7].base_offset + 1, iter(log[7:])),
        "c": ReplicaLog(log[3].base_offset, [*log[3:21], Batch(end, end + 1, b"not committed yet")]),
    }
    assert not list(find_divergence(P, replicas, end))
    assert not list(find_divergence(P, {"a": replicas["a"]}, end))
    assert not list(find_divergence(P, {}, end))


@pytest.mark.parametrize("how", ["change", "drop", "cut", "split", "insert"])
def test_a_difference_is_found_wherever_it_is_planted(how: str) -> None:
    for seed in range(20):
        random = Random(seed)
        log = batches(random)
        other = list(log)
        place = random.randrange(len(log))
        batch = log[place]
        if how == "change":
            other[place] = replace(batch, content=b"other")
        elif how == "drop":
            del other[place]
        elif how == "cut":
            del other[place:]
        elif how == "split":
            middle = batch.base_offset + 1
            other[place : place + 1] = [replace(batch, end_offset=middle), replace(batch, base_offset=middle)]
        else:
            other.insert(place, batch)
        logs = {"a": log, "b": list(log), "c": other}
        names = random.sample(sorted(logs), 3)
        findings = compare({name: logs[name] for name in names}, log[-1].end_offset)
        assert {finding.kind for finding in findings} == {Kind.REPLICA_DIVERGENCE}
        # The first replica is the reference: if it is the different one, both others differ from it.
        assert len(findings) == (2 if names[0] == "c" else 1)
        assert not compare({name: logs[name] for name in names}, batch.base_offset)


def test_replicas_that_all_end_too_early_are_found() -> None:
    log = batches(Random(2))
    findings = compare({"a": log, "b": list(log)}, log[-1].end_offset + 1)
    assert [finding.kind for finding in findings] == [Kind.REPLICA_DIVERGENCE]
    assert "below the high watermark" in findings[0].sentence


def test_findings_of_replicas_join_a_report() -> None:
    story = Story()
    story.send("a", (0, "x"))
    story.poll("r", (0, "x"))
    report = story.report()
    assert report.is_clean
    report.add(compare({"a": [Batch(0, 1, b"x")], "b": [Batch(0, 1, b"y")]}, 1))
    assert report.anomalies == {Kind.REPLICA_DIVERGENCE: 1}


def rows(*found: tuple[int, bytes, bytes | None]) -> list[Row]:
    return [Row(*row) for row in found]


FULL = rows((0, b"k", b"1"), (1, b"m", b"1"), (2, b"k", b"2"), (3, b"n", b"1"), (4, b"n", None))


def compacted(other: list[Row], start: int = 0) -> list[Finding]:
    return list(find_compacted_divergence(P, {"a": (0, FULL), "b": (start, other)}, 5))


def test_cleaning_runs_at_its_own_pace() -> None:
    assert not compacted(FULL)
    assert not compacted(FULL[1:])
    assert not compacted(FULL[1:3] + FULL[4:])
    assert not compacted(FULL[2:], start=2)
    # A tombstone is kept only for a while after its record.
    assert not list(find_compacted_divergence(P, {"a": (0, FULL[:3] + FULL[4:]), "b": (0, FULL[:3])}, 5))
    assert not list(find_compacted_divergence(P, {}, 5))


@pytest.mark.parametrize(
    "other",
    [
        [*FULL[:2], *FULL[3:]],
        [FULL[0], *FULL[2:]],
        [*FULL[:2], Row(2, b"k", b"other"), *FULL[3:]],
        [*FULL[:2], Row(2, b"other", b"2"), *FULL[3:]],
    ],
)
def test_a_surviving_record_may_not_differ_or_miss(other: list[Row]) -> None:
    assert {finding.kind for finding in compacted(other)} == {Kind.REPLICA_DIVERGENCE}
