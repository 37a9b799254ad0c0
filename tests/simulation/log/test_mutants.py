"""The random histories detect bugs: each safeguard removed from the log is noticed within a few hundred of them."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.log import directory as directory_module
from penstock.log import recovery as recovery_module
from penstock.log import truncation as truncation_module
from penstock.log.directory import DataDirectory
from penstock.log.ledger import Ledger
from penstock.log.log import Log, SyncTicket
from penstock.log.producers import ProducerStates
from penstock.log.settings import Durability
from penstock.model.ports import Disk
from penstock.records.header import BatchView
from tests.simulation.log.faults import run_failing_syncs, run_flip
from tests.simulation.log.histories import run_history

HISTORIES_MAX = 400


def seeds_to_notice(run: Callable[[int], object]) -> int | None:
    """The number of histories until one failed."""
    for seed in range(HISTORIES_MAX):
        try:
            run(seed)
        except Exception:
            return seed + 1
    return None


def in_fsync_mode(seed: int) -> object:
    return run_history(seed, Durability.FSYNC)


def acknowledges_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Log.begin_sync

    def promises_at_once(self: Log) -> SyncTicket | None:
        ticket = begin(self)
        self.synced_end = self.written_end
        return ticket

    monkeypatch.setattr(Log, "begin_sync", promises_at_once)


def forgets_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    async def writes_nothing(_self: Ledger, _entries: object) -> None:
        return None

    monkeypatch.setattr(Ledger, "record", writes_nothing)


def forgets_new_names(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Log.begin_sync

    def without_names(self: Log) -> SyncTicket | None:
        ticket = begin(self)
        return ticket._replace(has_new_names=False) if ticket is not None else None

    monkeypatch.setattr(Log, "begin_sync", without_names)


def truncates_before_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate = truncation_module._truncate

    async def records_later(log: Log, disk: Disk, ledger: Ledger, *rest: Any) -> None:
        late: list[Any] = []

        class Later:
            async def record(self, entries: list[Any]) -> None:
                late.extend(entries)

        await truncate(log, disk, Later(), *rest)  # type: ignore[arg-type]
        if late:
            await ledger.record(late)

    monkeypatch.setattr(truncation_module, "_truncate", records_later)


def keeps_the_clean_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leaves_it(_disk: Disk) -> None:
        return None

    monkeypatch.setattr(directory_module, "_remove_marker", leaves_it)


def trusts_batches_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchView, "is_intact", property(lambda _self: True))


def forgets_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_module, "_load_producers", lambda *_arguments: ProducerStates())


def tries_a_failed_sync_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def shrugs(self: Log, ticket: SyncTicket, _error: OSError) -> None:
        for file in ticket.files:
            file.unpin()
        self.note_unsynced(self.active)

    monkeypatch.setattr(Log, "fail_sync", shrugs)


def drops_the_header_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.segment.crc32c", lambda _data, _seed=0: 0)


def takes_damage_for_a_torn_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = recovery_module._TailScan

    class Trusting(scan):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.entry, self.has_reached_entry = None, True

    monkeypatch.setattr(recovery_module, "_TailScan", Trusting)


def settles_without_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = DataDirectory.commit

    async def skips_data(self: DataDirectory) -> list[Log]:
        async def all_well(files: list[object]) -> list[None]:
            return [None] * len(files)

        self.disk.sync_many = all_well  # type: ignore[method-assign, assignment]
        return await commit(self)

    monkeypatch.setattr(DataDirectory, "commit", skips_data)


@pytest.mark.parametrize(
    ("mutant", "run"),
    [
        (acknowledges_before_the_sync, in_fsync_mode),
        (forgets_the_ledger, run_flip),
        (forgets_new_names, in_fsync_mode),
        (truncates_before_the_ledger, in_fsync_mode),
        (keeps_the_clean_marker, in_fsync_mode),
        (trusts_batches_unseen, in_fsync_mode),
        (forgets_producers, in_fsync_mode),
        (tries_a_failed_sync_again, run_failing_syncs),
        (drops_the_header_checksum, run_flip),
        (takes_damage_for_a_torn_tail, run_flip),
        (settles_without_syncing, in_fsync_mode),
    ],
)
def test_the_histories_notice(
    mutant: Callable[[pytest.MonkeyPatch], None], run: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    needed = seeds_to_notice(run)
    assert needed is not None, f"{mutant.__name__} went unnoticed in {HISTORIES_MAX} histories"
    print(f"{mutant.__name__}: noticed after {needed} histories")
