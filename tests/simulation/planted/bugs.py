"""Subtle bugs, planted one at a time, and for each the cheapest proof that notices it.

A bug is one edit of one function (`planting`). Its proof is a test with fixed arguments, which takes a second or two;
the reason is a part of the failure's text, so that a proof that fails for something else does not count. Bugs that need
a search through worlds are in the other files of mutants. `python -m tests.simulation.planted` runs all proofs and,
with `--record`, writes docs/results/planted-bugs.md.
"""

import re
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import NamedTuple

import pytest

from penstock.coordinator import offsets as group_offsets
from penstock.log import checked, recovery, truncation, upkeep
from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.metadata import partitions as partition_decisions
from penstock.replication.fetcher import Fetcher
from penstock.replication.follower import Following
from penstock.replication.leader import Leader
from penstock.server.broker import Broker
from penstock.server.groups.group_log import PartitionLog
from penstock.server.handlers.records import produce_wait
from penstock.server.handlers.records.produce import ProduceHandler
from penstock.server.loop.driver import Driver
from penstock.server.membership.membership import Membership
from penstock.server.quorum.quorum_log import QuorumLog
from penstock.server.quorum.quorum_snapshots import SnapshotShelf
from tests.simulation.planted.planting import Edit
from tests.unit.metadata.cluster_world import ClusterWorld


class CoreMutant(NamedTuple):
    name: str
    edits: tuple[Edit, ...]
    proof: Callable[[], object]
    """A test; its `__name__` is the pytest name below tests/unit."""
    reason: str
    """A regular expression for the kind and text of the exception."""
    worlds: tuple[str, ...] = ()
    """Mutants below tests/simulation that break the same rule and are noticed by random worlds."""
    hidden_by: str = ""
    """The other safeguard that prevents the harm, if the bug does none alone."""


def mutant(
    name: str,
    *edits: Edit,
    proof: Callable[[], object],
    reason: str,
    worlds: tuple[str, ...] = (),
    hidden_by: str = "",
) -> CoreMutant:
    return CoreMutant(name, edits, proof, reason, worlds, hidden_by)


def unit(test: str, *arguments: object, **named: object) -> Callable[..., object]:
    """A test of tests/unit, by its pytest name. It is imported when it runs."""
    path, _, name = test.partition("::")
    module = "tests.unit." + path.removesuffix(".py").replace("/", ".")

    def run(*more: object) -> object:
        return getattr(import_module(module), name)(*arguments, *more, **named)

    run.__name__ = test
    return run


def three_partitions() -> ClusterWorld:
    """Each led by another broker."""
    world = ClusterWorld()
    world.create((1, 2, 3), (2, 3, 1), (3, 1, 2))
    return world


def in_world(make: Callable[[], ClusterWorld], test: Callable[[ClusterWorld], object]) -> Callable[[], None]:
    """Runs a test in a world of its own."""

    @wraps(test)
    def run() -> None:
        test(make())

    return run


def with_patch(test: Callable[[pytest.MonkeyPatch], object]) -> Callable[[], None]:
    """Runs a test that uses a patch itself."""

    @wraps(test)
    def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            test(patch)

    return run


ALL: list[CoreMutant] = [
    # --- log
    mutant(
        "truncation keeps leader epochs of what was cut",
        Edit(truncation._truncate, "    log.epochs.cut_end(log.written_end)\n", ""),
        proof=unit("log/test_truncation.py::test_a_cut_log_is_one_that_never_had_more", 0, settles=False),
        reason=r"EpochHistory.*latest",
    ),
    mutant(
        "replaying producers skips the first batch behind a snapshot",
        Edit(Log.producers_at, "start <= batch.base_offset < offset", "start < batch.base_offset < offset"),
        proof=unit("log/test_log.py::test_also_after_every_index_had_to_be_made_anew", 0),
        reason="Extra items in the right set",
    ),
    mutant(
        "truncation keeps index entries of what was cut",
        Edit(
            truncation._truncate,
            "shortened.index = log.rebuild_index(shortened)",
            "shortened.index = segment.index or log.rebuild_index(shortened)",
        ),
        proof=unit("log/test_truncation.py::test_a_cut_log_is_one_that_never_had_more", 10, settles=False),
        reason=r"\(6, 7, 12\)",
    ),
    mutant(
        "retention deletes a segment that reaches past the high watermark",
        Edit(upkeep.apply_retention, "segment.end_offset > log.high", "segment.base_offset > log.high"),
        Edit(
            upkeep.delete_before,
            "offset <= log.high_watermark:",
            "offset <= max(log.high_watermark, log.segments[-1].base_offset):",
        ),
        proof=unit("log/test_upkeep.py::test_retention_stops_at_the_high_watermark"),
        reason="start_offset",
    ),
    mutant(
        "group commit acknowledges before the ledger is synced",
        Edit(
            DataDirectory.commit,
            "    if good:\n",
            "    for ticket in synced:\n        ticket.log.finish_sync(ticket)\n    if good:\n",
        ),
        proof=unit("log/test_directory.py::test_a_ledger_that_fails_takes_every_log_offline"),
        reason="durable_end",
    ),
    mutant(
        "the ledger entry of a round that a truncation overtook is recorded",
        Edit(DataDirectory.commit, "t.cuts == t.log.cuts and ", ""),
        proof=unit("log/test_truncation.py::test_a_round_that_a_cut_overtook_is_not_written_down"),
        reason=r"LedgerEntry.*end_offset",
        worlds=("log/overlap_mutants.py::records_a_round_that_a_cut_overtook",),
    ),
    mutant(
        "a log that starts anew keeps its producers",
        Edit(truncation._restart, "    log.producers = ProducerStates()\n", ""),
        proof=unit("log/test_truncation.py::test_a_log_that_starts_anew_forgets_everything", 0),
        reason=r"\(1, 0, 2\) == \(1, 0, 0\)",
    ),
    mutant(
        "a recovered high watermark is not clipped to the end of the log",
        Edit(
            recovery.open_log,
            "max(log.start_offset, min(log.high_watermark, log.written_end))",
            "max(log.start_offset, log.high_watermark)",
        ),
        proof=unit(
            "log/test_recovery.py::test_the_high_watermark_of_a_log_that_lost_its_tail_is_no_higher_than_its_end"
        ),
        reason="last_stable_offset|high_watermark",
        worlds=("log/overlap_mutants.py::keeps_a_high_watermark_beyond_the_end",),
    ),
    mutant(
        "the undo of a write that found no room is not synced",
        Edit(Log._write_failed, "            self.note_unsynced(segment)\n", ""),
        proof=unit("log/test_full_disk.py::test_what_was_cut_off_stays_off_when_the_next_segment_has_begun", 0),
        reason="the file ends inside the batch",
    ),
    mutant(
        "truncation does not sync the directory, so that removed segments come back",
        Edit(truncation._truncate, "    await disk.sync_dir(log.path)\n", ""),
        proof=unit("log/test_truncation.py::test_a_cut_log_is_one_that_never_had_more", 0, settles=False),
        reason="does not follow the segment before it",
    ),
    mutant(
        "manifests, indexes and votes are renamed into place without a sync",
        Edit(checked.write_whole, "        await file.sync()\n", "        pass\n"),
        proof=unit("log/test_checked.py::test_a_power_cut_leaves_the_old_or_the_new", 0),
        reason="Damaged: .*is not a file of kind",
    ),
    # --- replication
    mutant(
        "the leader keeps what a follower acknowledged in its former life",
        Edit(Leader._note, "broker_epoch == progress.broker_epoch and offset", "offset"),
        proof=unit(
            "replication/test_leader.py::test_a_fetch_that_comes_late_takes_no_progress_back_but_another_life_does"
        ),
        reason=r"Progress.*end_offset",
    ),
    mutant(
        "the first fetch of a new follower acknowledges its unsynced tail",
        Edit(Fetcher.add, "    self._wait_for_sync(following)\n", ""),
        proof=unit("replication/test_replicas.py::test_a_leader_of_before_first_syncs_what_it_wrote"),
        reason="SyncLog",
        worlds=("replication_core/mutants.py::acknowledges_before_the_sync",),
    ),
    mutant(
        "a follower takes the answer to a fetch of a former leader epoch",
        Edit(Following.take, "asked.current_leader_epoch != self.epoch or ", ""),
        proof=unit("replication/test_replicas.py::test_late_answers_and_answers_of_a_former_epoch_are_not_taken"),
        reason="written_end",
    ),
    mutant(
        "a refused AlterPartition stays valid and can be carried out late",
        Edit(
            partition_decisions.alter_partition,
            "                records.append(_outdated(wanted, cluster))\n",
            "                pass\n",
        ),
        proof=in_world(
            three_partitions,
            unit("metadata/test_full_disks.py::test_it_cannot_join_or_be_elected_before_there_is_room"),
        ),
        reason="come late, it does nothing",
    ),
    # --- server
    mutant(
        "effects leave before the vote that they follow is on disk",
        Edit(Driver._do, "        self._is_blocked = True\n", ""),
        proof=unit("server/test_driver.py::test_nothing_overtakes_a_barrier_and_steps_go_on"),
        reason=r"== \['1', '2'\]",
        worlds=(
            "quorum_servers/test_worlds.py::test_a_driver_that_does_not_wait_for_its_state_is_missed",
            "raft_core/mutants.py::answers_before_the_vote_is_on_disk",
        ),
    ),
    mutant(
        "the quorum's log is reported as synced when it is only written",
        Edit(vars(QuorumLog)["synced_end"].fget, "self.log.durable_end", "self.log.written_end"),
        proof=unit("server/test_quorum_disk.py::test_a_synced_end_survives_the_power"),
        reason=r"\(2, 2\) == \(1, 2\)",
        worlds=(
            "quorum_servers/test_worlds.py::test_a_log_that_is_not_synced_is_missed",
            "raft_core/mutants.py::counts_its_own_log_before_the_sync",
        ),
    ),
    mutant(
        "a metadata snapshot is renamed into place without a sync",
        Edit(SnapshotShelf.finish, "        await file.sync()\n", "        pass\n"),
        proof=unit("server/test_quorum_disk.py::test_a_snapshot_travels_in_pieces"),
        reason="CorruptBatch: .*does not begin with a voter set",
    ),
    mutant(
        "a broker that lost power vouches for what was not synced",
        Edit(Broker._previous_epoch, "if not unsynced:", "if not unsynced or True:"),
        proof=unit(
            "server/test_replication.py::test_a_broker_that_lost_power_vouches_only_for_what_was_synced",
            "replicated",
            is_sure=False,
        ),
        reason="_previous_epoch",
        worlds=(
            "page_cache_servers/test_worlds.py::takes_power_cuts_for_kills",
            "replication_core/mutants.py::r10_vouches_for_what_it_has_lost",
        ),
    ),
    mutant(
        "a broker with a damaged ledger vouches for what it had",
        Edit(
            Broker._previous_epoch,
            "before == NO_EPOCH or directory.findings.doubt or directory.pool.boot.loss == DAMAGED",
            "before == NO_EPOCH",
        ),
        proof=unit(
            "server/test_replication.py::test_a_broker_with_a_damaged_ledger_vouches_for_nothing", is_damaged=True
        ),
        reason="_previous_epoch",
    ),
    mutant(
        "a broker's lease counts from the answer instead of the question",
        Edit(Membership._heartbeat, "extend(asked_ms, ", "extend(self._clock.monotonic_ms(), "),
        proof=with_patch(unit("server/test_replication.py::test_a_lease_counts_from_the_question")),
        reason="the lease is longer than the controller's patience",
        hidden_by="a heartbeat is given up after a third of a session, and a lease is two thirds of one, so that the "
        "lease still ends with the session; the margin for a controller that answers after it was replaced is gone",
    ),
    mutant(
        "a repeated batch is acknowledged at once, committed or not",
        Edit(
            ProduceHandler._try_to_append,
            "        appended.last_offset + 1,\n",
            "        0 if appended.is_duplicate else appended.last_offset + 1,\n",
        ),
        proof=unit("server/handlers/test_produce.py::test_a_duplicate_waits_like_its_original_and_is_answered_alike"),
        reason="a duplicate must not be acknowledged before its original is durable",
    ),
    mutant(
        "an answer leaves one record early",
        Edit(produce_wait.is_reached, ">= end_offset", ">= end_offset - 1"),
        proof=unit("server/handlers/test_produce.py::test_an_answer_waits_for_the_disk", 1),
        reason="high_watermark",
    ),
    # --- groups
    mutant(
        "a commit of an older generation is taken while the group rebalances",
        Edit(
            group_offsets._may_commit,
            "if epoch != group.generation:",
            "if epoch != group.generation and group.state is not State.PREPARING:",
        ),
        proof=unit("coordinator/test_offsets.py::test_a_commit_of_the_last_generation_is_refused_while_others_join"),
        reason="ILLEGAL_GENERATION",
        worlds=("groups_core/mutants.py::takes_commits_of_any_generation",),
    ),
    mutant(
        "a coordinator appends in a leader epoch that is over",
        Edit(PartitionLog.append, "partition is None or partition.leader_epoch != epoch", "partition is None"),
        proof=unit("server/test_group_log.py::test_nothing_is_written_in_an_epoch_that_is_over"),
        reason="DID NOT RAISE",
        hidden_by="a new epoch reaches the shard in the same turn of the loop, before the next request, and a "
        "partition that is no longer led is not found",
    ),
]


def why_not(proof: Callable[[], object]) -> str | None:
    """The failure of the proof, by kind and text; None if it holds."""
    try:
        proof()
    except (Exception, pytest.fail.Exception) as error:
        return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")
    return None
