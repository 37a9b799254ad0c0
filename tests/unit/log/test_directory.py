"""A data directory: ownership, creation and deletion of logs, and rounds of group commit."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock.host.memory import MemoryDisk
from penstock.log import checked, times
from penstock.log.checked import Damaged, NewerFormat
from penstock.log.directory import FORMAT_VERSION, DataDirectory, WrongDirectory, open_directory
from penstock.log.log import Log
from penstock.log.scrub import scrub
from penstock.model.errors import StorageError
from tests.simulation.log.histories import PowerCut, ZeroEntropy, drive
from tests.unit.log.place import SETTINGS, Place, a_batch, from_producer


def open_on(disk: Any, *, cluster_id: str = "c", node_id: int = 1) -> DataDirectory:
    return drive(open_directory(disk, cluster_id=cluster_id, node_id=node_id, entropy=ZeroEntropy(), now_ms=0))


def another_log(place: Place, topic: str = "u", partition: int = 0) -> Log:
    return drive(place.directory.create(topic, "id", partition, SETTINGS))


def append_to(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append(a_batch(), leader_epoch=0, now_ms=0)


# --- ownership ----------------------------------------------------------------------------------------------------


def test_a_new_directory_says_whose_it_is() -> None:
    disk = MemoryDisk()
    assert open_on(disk).identity == {"cluster_id": "c", "node_id": 1, "directory_id": "00" * 16}
    assert open_on(disk).identity == {"cluster_id": "c", "node_id": 1, "directory_id": "00" * 16}


def test_another_cluster_or_node_is_refused_in_words() -> None:
    disk = MemoryDisk()
    drive(open_on(disk).close())
    with pytest.raises(WrongDirectory) as caught:
        open_on(disk, cluster_id="d")
    assert str(caught.value) == (
        "this data directory belongs to cluster id 'c', not 'd': "
        "point the node at its own directory, or at an empty one"
    )
    with pytest.raises(WrongDirectory, match="belongs to node id 1, not 2"):
        open_on(disk, node_id=2)
    assert disk.exists("clean"), "whoever is refused has touched nothing"


def test_a_newer_format_is_refused_in_words() -> None:
    disk = MemoryDisk()
    directory = open_on(disk)
    drive(directory.close())
    drive(checked.replace(disk, "directory", "directory", FORMAT_VERSION + 1, directory.identity))
    with pytest.raises(NewerFormat) as caught:
        open_on(disk)
    assert str(caught.value) == (
        f"directory was written by a newer Penstock (format {FORMAT_VERSION + 1}, this program reads up to "
        f"{FORMAT_VERSION}): upgrade the program, or restore the directory from a backup made before the upgrade"
    )
    assert disk.exists("clean")


def test_one_damaged_copy_of_the_identity_is_survived_and_two_are_not() -> None:
    place = Place()
    place.flip("directory", 40)
    place.kill()
    assert len(place.directory.findings.damage) == 1
    assert place.directory.findings.damage[0].startswith("directory: ")
    file = place.disk.open("directory")
    size_bytes = file.size()
    file.close()
    place.flip("directory", size_bytes // 2 + 40)
    with pytest.raises(Damaged):
        place.kill()


@pytest.mark.parametrize("waits", range(6))
def test_a_first_opening_may_be_interrupted(waits: int) -> None:
    for is_torn in (False, True):
        for seed in range(5):
            place = Place(suspends=True, is_torn=is_torn, seed=seed)
            disk = place.disk
            for path in ("directory", "ledger-0", "ledger-1"):  # as in an empty directory
                if disk.exists(path):
                    disk.unlink(path)
            place.directory._remove_tree("logs/t-0")
            disk.remove_dir("logs")
            drive(disk.sync_all())
            place.disk = disk.power_cut()
            with suppress(PowerCut):
                place.open(waits)
            place.disk = place.disk.power_cut()
            directory = place.open()
            assert directory.findings.damage == []
            assert directory.logs == {}


# --- creating and deleting logs -----------------------------------------------------------------------------------


def test_a_name_is_taken_once() -> None:
    place = Place()
    with pytest.raises(ValueError, match="there is a log t-0 already"):
        another_log(place, "t")


def test_topics_may_have_dashes() -> None:
    place = Place()
    another_log(place, "a-b-1", 7)
    place.cut_power()
    log = place.directory.logs["a-b-1-7"]
    assert (log.identity.topic, log.identity.partition) == ("a-b-1", 7)


def test_a_log_may_start_anywhere() -> None:
    place = Place()
    log = drive(place.directory.create("u", "id", 0, SETTINGS, start=500))
    append_to(log)
    place.commit()
    place.cut_power()
    log = place.directory.logs["u-0"]
    assert (log.start_offset, log.written_end, log.high_watermark) == (500, 501, 500)


@pytest.mark.parametrize("dies", ["power", "process"])
@pytest.mark.parametrize("waits", range(5))
def test_a_log_is_created_or_not(waits: int, dies: str) -> None:
    """If the log exists after a process crash, records acknowledged from then on survive the next power cut."""
    for is_torn in (False, True):
        for seed in range(6):
            place = Place(suspends=True, is_torn=is_torn, seed=seed)
            is_done = False
            with suppress(PowerCut):
                drive(place.directory.create("u", "id", 0, SETTINGS), waits)
                is_done = True
            place.kill() if dies == "process" else place.cut_power()
            assert place.directory.findings.damage == []
            log = place.directory.logs.get("u-0")
            assert log is not None or not is_done
            if log is None:
                assert not place.disk.exists("logs/u-0"), "what was not finished is removed"
                log = another_log(place)
            append_to(log)
            place.commit()
            place.cut_power()
            assert place.directory.logs["u-0"].written_end == 1


def test_records_without_a_manifest_are_left_alone() -> None:
    """No code of ours leaves such a directory: a file was lost, and an operator may want to keep the others."""
    place = Place()
    place.append_many(3)
    place.commit()
    place.disk.unlink("logs/t-0/manifest")
    place.disk.kill_process()
    directory = place.open()
    assert directory.logs == {}
    assert directory.findings.damage == ["logs/t-0: has records but no manifest, and was left alone"]
    assert place.disk.exists("logs/t-0/00000000000000000000-0.log")
    with pytest.raises(StorageError, match="has records but no manifest: move it away, or restore its manifest"):
        drive(directory.create("t", "id", 0, SETTINGS))


def test_a_deleted_log_is_gone() -> None:
    place = Place()
    other = another_log(place)
    append_to(other, 30)
    place.commit()
    open_slice = other.read(0, 100, limit=30)
    assert open_slice is not None
    drive(place.directory.delete(other))
    assert list(place.directory.logs) == ["t-0"]
    assert place.disk.list("logs") == ["t-0"]
    assert len(open_slice.read()) > 0, "what is being sent is sent"
    open_slice.release()
    with pytest.raises(StorageError, match="deleted"):
        append_to(other)
    assert another_log(place).identity.number > other.identity.number
    place.cut_power()
    assert place.directory.logs["u-0"].written_end == 0


def test_a_dirty_log_may_be_deleted() -> None:
    place = Place()
    other = another_log(place)
    append_to(other)
    place.append()
    drive(place.directory.delete(other))
    assert place.commit() == [place.log]


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("waits", range(2))
def test_a_power_cut_while_deleting_leaves_all_or_nothing(waits: int, is_torn: bool) -> None:
    for seed in range(20 if is_torn else 1):
        place = Place(suspends=True, is_torn=is_torn, seed=seed)
        other = another_log(place)
        append_to(other, 30)
        place.commit()
        with suppress(PowerCut):
            drive(place.directory.delete(other), waits)
        place.cut_power()
        assert place.directory.findings.damage == []
        assert not any(name.endswith(".gone") for name in place.disk.list("logs"))
        found = place.directory.logs.get("u-0")
        assert found is None or (waits == 0 and found.written_end == 30)


@pytest.mark.parametrize("length", [246, 247, 248, 249])
@pytest.mark.parametrize("partition", [0, 99_999])
def test_a_log_with_the_longest_name_is_deleted_and_made_anew(length: int, partition: int) -> None:
    place = Place(suspends=True)
    topic = "t" * length
    log = another_log(place, topic, partition)
    append_to(log, 5)
    place.commit()
    with pytest.raises(PowerCut):
        drive(place.directory.delete(log), 0)  # renamed, not synced
    place.kill()
    assert [name for name in place.disk.list("logs") if name.startswith("ttt") or name.endswith(".gone")] == []
    log = another_log(place, topic, partition)
    drive(place.directory.delete(log))
    assert place.disk.list("logs") == ["t-0"]
    assert another_log(place, topic, partition).written_end == 0


def test_what_an_earlier_release_left_of_a_deletion_is_removed() -> None:
    place = Place()
    place.append_many(3)
    place.commit()
    other = another_log(place)
    append_to(other, 3)
    place.commit()
    place.disk.rename(other.path, f"logs/u-0.{other.identity.number}.gone")
    place.kill()
    assert place.disk.list("logs") == ["t-0"]
    assert place.log.written_end == 3


# --- group commit -------------------------------------------------------------------------------------------------


def test_a_round_covers_several_logs_with_one_sync_of_the_ledger() -> None:
    place = Place()
    logs = [place.log, *(another_log(place, "u", number) for number in range(9))]
    for log in logs:
        append_to(log, 3)
    syncs: list[str] = []

    async def count(operation: str, path: str) -> None:
        syncs.append(f"{operation} {path}")

    place.disk.delay = count
    assert place.commit() == logs
    assert sum("ledger" in sync for sync in syncs) == 1
    assert len(syncs) == len(logs) + 1
    place.disk.delay = None
    assert all(log.durable_end == 3 for log in logs)
    place.cut_power()
    assert {log.written_end for log in place.directory.logs.values()} == {3}


def test_the_data_is_synced_before_the_ledger() -> None:
    place = Place()
    place.append_many(30)
    syncs: list[str] = []

    async def note(operation: str, path: str) -> None:
        syncs.append(f"{operation} {path}")

    place.disk.delay = note
    place.commit()
    names = [f"sync {place.log.path_of(segment, 'log')}" for segment in place.log.segments]
    assert syncs == [*names, "sync_dir logs/t-0", "sync ledger-1"]


def test_whoever_runs_rounds_is_woken_once() -> None:
    place = Place()
    wakes: list[int] = []
    place.directory.became_dirty.connect(lambda: wakes.append(1))
    assert not place.directory.is_dirty
    place.append_many(3)
    assert place.directory.is_dirty
    assert len(wakes) == 1
    place.commit()
    assert not place.directory.is_dirty
    place.append()
    assert len(wakes) == 2


def test_the_ledger_does_not_vouch_for_a_log_that_failed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sync of the same file fails first: ours then succeeds, which proves nothing."""
    place = Place()
    place.append_many(3)
    place.commit()
    place.append_many(3)
    sync_many = place.disk.sync_many

    async def second(files: Any) -> Any:
        place.log.take_offline("a segment could not be sealed: EIO")
        return await sync_many(files)

    monkeypatch.setattr(place.disk, "sync_many", second)
    place.commit()
    assert place.directory.ledger.entries[place.log.identity.number].end_offset == 3


def test_what_is_appended_during_a_round_belongs_to_the_next() -> None:
    place = Place(suspends=True)
    place.append_many(3)
    round_ = place.directory.commit()
    round_.send(None)
    place.append_many(2)
    drive(round_)
    assert (place.log.durable_end, place.log.written_end) == (3, 5)
    assert place.directory.is_dirty
    place.commit()
    assert place.log.durable_end == 5


@pytest.mark.parametrize("operation", ["sync", "open"])
def test_a_log_whose_sync_fails_goes_offline_and_the_others_are_covered(operation: str) -> None:
    place = Place(files_open_max=1)
    other, third = another_log(place), another_log(place, "v")
    for log in (place.log, other, third):
        append_to(log)
    place.disk.fail_next(operation, other.path_of(other.active, "log"))
    covered = place.commit()
    assert other in covered
    assert other.offline_reason is not None
    assert other.durable_end == 0
    assert place.log.durable_end == third.durable_end == 1
    assert place.directory.offline_reason is None
    with pytest.raises(StorageError, match="a sync failed"):
        append_to(other)
    place.cut_power()
    assert place.directory.findings.damage == []


def test_a_ledger_that_fails_takes_every_log_offline() -> None:
    place = Place()
    other = another_log(place)
    place.append()
    place.disk.fail_next("sync", "ledger-1")
    place.commit()
    for log in (place.log, other):
        assert log.offline_reason is not None
        assert "the ledger could not be written" in log.offline_reason
        assert log.durable_end == 0
    assert place.directory.offline_reason is not None
    drive(place.directory.close())
    assert not place.disk.exists("clean")
    place.cut_power()
    assert place.directory.findings.damage == []
    assert place.log.offline_reason is None


# --- bounds -------------------------------------------------------------------------------------------------------


def test_fifty_logs_keep_within_their_files_and_maps() -> None:
    place = Place(files_open_max=8, maps_open_max=4)
    bound = 8 + 4 + 8  # files, maps, and files open during one call: the ledger, a segment being sealed
    logs = [another_log(place, "u", number) for number in range(50)]
    peak = 0

    async def look(_operation: str, _path: str) -> None:
        nonlocal peak
        peak = max(peak, place.disk.open_count)

    place.disk.delay = look
    for _ in range(3):
        for log in logs:
            append_to(log, 10)
        assert len(place.commit()) == 50
        drive(place.directory.settle())
        for log in logs:
            part = log.read(0, 100, limit=log.written_end)
            assert part is not None
            part.release()
            assert times.offset_for_time(log, 0, limit=99) is not None
            assert place.directory.pool.files_open <= 8
            assert place.directory.pool.maps_open <= 4
            peak = max(peak, place.disk.open_count)
    assert peak <= bound
    place.restart()
    assert place.disk.open_count <= bound
    for log in place.directory.logs.values():
        assert log.written_end in (0, 30)
    place.cut_power()
    assert place.disk.open_count <= bound
    assert place.directory.findings.damage == []


# --- shutting down ------------------------------------------------------------------------------------------------


def test_a_shutdown_gives_every_file_back() -> None:
    place = Place()
    place.append_many(30)
    part = place.log.read(0, 100, limit=30)
    assert part is not None
    part.release()
    drive(place.directory.close())
    assert place.disk.open_count == 0


def test_a_shutdown_makes_everything_durable() -> None:
    place = Place()
    for sequence in range(30):
        place.append(from_producer(5, sequence))
    drive(place.directory.close())
    log = place.cut_power()
    assert place.directory.findings.scanned_bytes == 0
    assert log.written_end == 30
    assert scrub(log, place.disk) == []


def test_a_log_that_is_offline_spoils_the_marker_but_not_the_others() -> None:
    place = Place()
    other = another_log(place)
    append_to(other, 3)
    place.append_many(3)
    place.commit()
    place.log.take_offline("broken")
    drive(place.directory.close())
    assert not place.disk.exists("clean")
    place.cut_power()
    assert place.directory.findings.damage == []
    assert {log.written_end for log in place.directory.logs.values()} == {3}


@pytest.mark.parametrize("waits", range(7))
def test_a_power_cut_while_shutting_down_is_like_any_other(waits: int) -> None:
    """Also for the second shutdown at the same offset, whose producer snapshot already exists."""
    for seed in range(25):
        place = Place(suspends=True, is_torn=True, seed=seed)
        for sequence in range(8):
            place.append(from_producer(sequence, sequence))
        place.log.roll()
        place.restart()
        with suppress(PowerCut):
            drive(place.directory.close(), waits)
        log = place.cut_power()
        assert place.directory.findings.damage == []
        assert place.directory.findings.rebuilt == []
        assert log.written_end == 8
        assert len(log.producers) == 8


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_damaged_marker_is_no_marker(content: bytes) -> None:
    place = Place()
    place.append_many(3)
    drive(place.directory.close())
    file = place.disk.open("clean")
    file.truncate(0)
    file.write(0, content)
    file.close()
    place.kill()
    assert place.directory.findings.damage == ["clean: is not a file of kind 'clean'"]
    assert place.directory.findings.scanned_bytes > 0
    assert place.log.written_end == 3


# --- damaged logs -------------------------------------------------------------------------------------------------


def damaged(place: Place) -> Log:
    place.append_many(3)
    place.commit()
    place.flip(place.log.path_of(place.log.active, "log"), 100)
    log = place.kill()
    assert log.is_damaged
    return log


@pytest.mark.parametrize("again", [Place.kill, Place.cut_power, Place.restart])
def test_a_damaged_log_is_set_aside_and_found_again(again: Callable[[Place], Log]) -> None:
    place = Place()
    log = damaged(place)
    before = place.disk.list(log.path)
    drive(place.directory.set_aside(log))
    assert place.directory.logs == {}
    place.log = drive(place.directory.create("t", "id", 0, SETTINGS))
    assert place.append().base_offset == 0
    place.commit()
    again(place)
    assert place.directory.kept_aside == {log.identity.number: log.identity}
    assert place.disk.list(f"logs/{log.identity.number}.damaged") == before
    assert place.log.identity.number > log.identity.number
    drive(place.directory.remove_aside(log.identity.number))
    place.cut_power()
    assert place.directory.kept_aside == {}
    assert place.disk.list("logs") == ["t-0"]
    assert place.offsets() == [0]


def test_of_two_damaged_logs_of_a_partition_the_first_is_kept() -> None:
    place = Place()
    first = damaged(place)
    drive(place.directory.set_aside(first))
    place.log = drive(place.directory.create("t", "id", 0, SETTINGS))
    second = damaged(place)
    drive(place.directory.set_aside(second))
    assert list(place.directory.kept_aside) == [first.identity.number]
    assert place.disk.list("logs") == [f"{first.identity.number}.damaged"]


@pytest.mark.parametrize("waits", range(6))
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_power_cut_while_setting_aside_leaves_the_log_in_one_place(waits: int, is_torn: bool) -> None:
    place = Place(suspends=True, is_torn=is_torn)
    log = damaged(place)
    with suppress(PowerCut):
        drive(place.directory.set_aside(log), waits)
    place.disk = place.disk.power_cut()
    directory = place.open()
    places = [*directory.logs, *directory.kept_aside]
    assert places in (["t-0"], [log.identity.number])
    assert all(each.is_damaged for each in directory.logs.values())
