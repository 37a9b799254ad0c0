"""`penstock verify`: verdicts on a correct cluster and on clusters with planted bugs."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.errors import Misused
from penstock.cli.verify.history_file import HistoryFile, judge
from penstock.cli.verify.load import Names
from penstock.cli.verify.outcome import Account, VerifyOutcome
from penstock.cli.verify.run import Driven, Load, Run
from penstock.cli.verify.topic import RunTopic
from penstock.verify.findings import Kind
from penstock.verify.recorder import Recorder
from tests.unit.cli.conftest import Penstock
from tests.unit.cli.verify_cluster import PARTITIONS, Bugs, MemoryCluster

TOPIC = RunTopic("t", tuple(range(PARTITIONS)), replicas=3, in_sync=2, is_new=True)
SOON_S = 0.5
ENOUGH_S = 20.0

Verify = Callable[..., VerifyOutcome]


@pytest.fixture
def verify(tmp_path: Path) -> Verify:
    """Runs `penstock verify` against a cluster in memory."""

    def run(cluster: MemoryCluster, topic: RunTopic = TOPIC, *, settle_s: float = ENOUGH_S) -> VerifyOutcome:
        load = Load(seconds=0.3, rate=2_000.0, producers=2, record_bytes=60, settle_s=settle_s)
        path = tmp_path / "run.jsonl"
        file = HistoryFile(path)
        recorder = Recorder(time.monotonic_ns, file.write)
        driven = asyncio.run(Run(topic, load, cluster, cluster, recorder, lambda _done, _text: None).drive())
        file.close()
        return VerifyOutcome(judge(path)[0], driven.open_question, path, Account(topic, load, "all", driven))

    return run


def account(outcome: VerifyOutcome) -> Driven:
    assert outcome.account is not None
    return outcome.account.driven


def kinds(outcome: VerifyOutcome) -> set[Kind]:
    return set(outcome.report.anomalies)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_cluster_that_keeps_its_promises(verify: Verify) -> None:
    cluster = MemoryCluster()
    outcome = verify(cluster)
    assert (outcome.word, kinds(outcome)) == ("kept", set())
    counts = outcome.report.counts
    assert account(outcome).acknowledged == account(outcome).sent == counts.records_acked == cluster.sent >= 100
    assert counts.records_polled == 4 * counts.records_acked, "two readers follow, two read anew"
    assert counts.offset_questions > 4


@pytest.mark.parametrize(
    ("bugs", "kind"),
    [
        (Bugs(lost=frozenset({40})), Kind.LOST_WRITE),
        (Bugs(doubled=frozenset({40})), Kind.DUPLICATE),
        (Bugs(changed=frozenset({40})), Kind.PHANTOM_READ),
        (Bugs(swapped=frozenset({40, 80, 120})), Kind.INCONSISTENT_OFFSETS),
        (Bugs(hidden_from=lambda reader, offset: reader == "fresh-1" and offset == 20), Kind.POLL_SKIP),
        (Bugs(hidden_from=lambda reader, offset: reader == "reader-0" and offset == 20), Kind.POLL_SKIP),
        (Bugs(cut_before_the_end=5), Kind.UNSEEN),
        (Bugs(cut_at_the_end=5), Kind.LISTED_OFFSET_REGRESS),
    ],
    ids=["lost", "doubled", "changed", "swapped", "hidden at the end", "hidden meanwhile", "cut off", "cut off late"],
)
def test_a_broken_promise_is_found(verify: Verify, bugs: Bugs, kind: Kind) -> None:
    outcome = verify(MemoryCluster(bugs), settle_s=SOON_S if bugs.cut_at_the_end else ENOUGH_S)
    assert outcome.word == "broken"
    found = kinds(outcome)
    assert kind in found or (kind is Kind.POLL_SKIP and Kind.INT_POLL_SKIP in found), outcome.report.text()


def test_refusals_unknown_fates_and_readers_that_stumble_break_no_promise(verify: Verify) -> None:
    outcome = verify(MemoryCluster(Bugs(fails_often=True)))
    assert outcome.word == "kept", outcome.report.text()
    counts = outcome.report.counts
    assert 0 < counts.records_acked < counts.records_read < counts.records_sent


def test_nothing_acknowledged_is_nothing_proven(verify: Verify) -> None:
    outcome = verify(MemoryCluster(Bugs(refuses=True)))
    assert outcome.word == "undecided"
    assert outcome.open_question == "nothing was acknowledged: NOT_ENOUGH_REPLICAS"


def test_a_cluster_that_never_answers_in_the_end_leaves_it_open(verify: Verify) -> None:
    outcome = verify(MemoryCluster(Bugs(never_lists=True)))
    assert outcome.word == "undecided"
    assert "where all partitions end: no answer" in str(outcome.open_question)


def test_readers_that_do_not_get_to_the_end_leave_it_open(verify: Verify) -> None:
    outcome = verify(MemoryCluster(Bugs(unread_end=True)), settle_s=SOON_S)
    assert outcome.word == "undecided"
    assert outcome.open_question == "fresh-0 had not read everything after 0.5 s more"


def test_what_is_broken_stays_broken_however_the_run_ended(verify: Verify) -> None:
    outcome = verify(MemoryCluster(Bugs(unread_end=True, doubled=frozenset({40}))), settle_s=SOON_S)
    assert outcome.word == "broken"


def test_records_of_others_are_none_of_its_business(verify: Verify) -> None:
    """A topic that existed before holds older records, and other clients write to it."""
    cluster = MemoryCluster()
    for log in cluster.logs.values():
        log.extend(b"the past %d" % each for each in range(10))
    outcome = verify(cluster, RunTopic("t", TOPIC.partitions, 3, 2, is_new=False))
    assert outcome.word == "kept", outcome.report.text()
    in_its_own = verify(cluster)
    assert kinds(in_its_own) == {Kind.PHANTOM_READ}, "nobody else writes there"


@pytest.mark.parametrize(("sent", "is_told"), [(960, False), (940, True)])
def test_a_cluster_that_took_less_than_it_was_to_get_is_told_of(sent: int, is_told: bool) -> None:
    load = Load(seconds=10.0, rate=100.0, producers=2, record_bytes=60, settle_s=ENOUGH_S)
    text = Account(TOPIC, load, "all", Driven("some client", sent, sent, 3.0, None)).text()
    assert ("--rate asked for 1,000 records; the cluster did not take more." in text) == is_told


def test_a_body_that_was_changed_is_a_value_that_nobody_sent() -> None:
    names = Names("t", "run", 40, is_alone=False)
    body = names.body("run.writer-0.7")
    assert len(body) == 40
    assert names.value(body) == "run.writer-0.7"
    assert names.value(body[:-1]) == repr(body[:-1])
    assert names.value(b"somebody else's") is None


# --- saved histories --------------------------------------------------------------------------------------------------


def test_a_history_is_checked_again(verify: Verify, penstock: Penstock) -> None:
    path = verify(MemoryCluster()).history
    result = penstock("verify", "--check", str(path), "-o", "json")
    assert result.code == 0
    found: dict[str, Any] = json.loads(result.out)
    assert (found["verdict"], found["findings"], found["run"]) == ("kept", [], None)
    assert {each["kind"]: each["verdict"] for each in found["rules"]}["lost-write"] == "kept"


def test_a_broken_history_names_the_operations(verify: Verify, penstock: Penstock) -> None:
    path = verify(MemoryCluster(Bugs(lost=frozenset({40})))).history
    result = penstock("verify", "--check", str(path))
    assert result.code == 1
    assert "BROKEN   lost-write" in result.out
    assert "but all readers passed it." in result.out
    conclusion = result.out.splitlines()[-1]
    assert conclusion.startswith("BROKEN: ")
    assert "lost-write 1 time" in conclusion


def test_a_history_that_was_cut_short_proves_nothing_about_its_end(
    verify: Verify, penstock: Penstock, tmp_path: Path
) -> None:
    lines = verify(MemoryCluster()).history.read_text().splitlines(keepends=True)  # type: ignore[union-attr]
    (tmp_path / "cut.jsonl").write_text("".join(lines[: len(lines) // 2]))
    result = penstock("verify", "--check", "cut.jsonl")
    assert result.code == 2
    assert "UNDECIDED: the run was cut short before everything was read" in result.out


def test_the_history_of_somebody_else_ends_with_a_full_read(penstock: Penstock, tmp_path: Path) -> None:
    with (tmp_path / "other.jsonl").open("w") as file:
        recorder = Recorder(time.monotonic_ns, file.write)
        recorder.invoke("w", "send", [["t-0", None, 1]]).ok([["t-0", 0, 1]])
    result = penstock("verify", "--check", "other.jsonl")
    assert result.code == 1
    assert "unseen" in result.out


@pytest.mark.parametrize(
    ("content", "part"), [(b"what?\n", "line 1: not JSON"), (b"\xff\xfe\n", "it is not text"), (None, "No such file")]
)
def test_what_is_no_history_cannot_be_checked(
    penstock: Penstock, tmp_path: Path, content: bytes | None, part: str
) -> None:
    if content is not None:
        (tmp_path / "strange").write_bytes(content)
    result = penstock("verify", "--check", "strange")
    assert (result.code, result.out) == (2, "")
    assert part in result.err


def test_a_full_disk_is_told_of() -> None:
    file = HistoryFile(Path("/dev/full"))
    for _ in range(2_000):
        file.write("a line of a history\n")
    with pytest.raises(Misused, match=r"No space left.*choose another place"):
        file.close()


# --- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--acks", "0"), "nothing is promised"),
        (("--seconds", "3000"), "more than the 2,000,000"),
        (("-c", "retention.ms"), "is not name=value"),
        (("-b", "127.0.0.1:1"), "Start one with `penstock dev`"),
    ],
    ids=["acks", "records", "config", "nobody"],
)
def test_what_cannot_run_ends_with_two(penstock: Penstock, arguments: tuple[str, ...], part: str) -> None:
    result = penstock("verify", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert part in result.err


def test_a_history_is_never_written_over(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "precious.jsonl").write_text("mine")
    result = penstock("verify", "--history", "precious.jsonl")
    assert result.code == 2
    assert "give another name to --history" in result.err
    assert (tmp_path / "precious.jsonl").read_text() == "mine"
