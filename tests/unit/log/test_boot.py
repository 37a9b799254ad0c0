"""The file `boot` distinguishes a killed process, which keeps the page cache, from a power cut, which does not."""

import errno
from contextlib import suppress

import pytest

from penstock.log.boot import BOOT, DAMAGED, NONE, UNREGISTERED, UNREPORTED, VERSION
from penstock.log.checked import Damaged, read
from penstock.log.ledger import ENTRY_BYTES
from penstock.log.settings import Durability, LogSettings
from penstock.model.errors import DiskFull, StorageError
from tests.simulation.log.histories import PowerCut, drive
from tests.unit.log.place import Place

REPLICATED = LogSettings(segment_bytes=1000, index_interval_bytes=100, durability=Durability.REPLICATED)


def a_place(**options: bool) -> Place:
    place = Place(REPLICATED, **options)
    place.append_many(3)
    return place


def is_kept(place: Place) -> bool:
    return place.directory.pool.boot.is_kept


def loss(place: Place) -> str:
    return place.directory.pool.boot.loss


def recorded(place: Place) -> str:
    found: str = read(place.disk, BOOT, BOOT, VERSION).value["loss"]
    return found.strip()


def register(place: Place) -> None:
    """Records that the controller knows about a possible loss, as a broker does after registration."""
    drive(place.directory.pool.boot.note(UNREPORTED))


def test_a_new_directory_has_lost_nothing() -> None:
    place = Place()
    assert (is_kept(place), loss(place), recorded(place)) == (True, NONE, NONE)


def test_kills_lose_nothing_however_many() -> None:
    place = a_place()
    for _ in range(3):
        place.kill()
        assert (is_kept(place), loss(place)) == (True, NONE)
        assert place.offsets() == [0, 1, 2]


def test_a_power_cut_is_distrusted_until_the_controller_knows() -> None:
    """The starts in between have the same boot id as the start before."""
    place = a_place()
    place.cut_power()
    for _ in range(3):
        assert (is_kept(place), loss(place)) == (False, UNREGISTERED)
        place.kill()
    register(place)
    place.kill()
    assert (is_kept(place), loss(place)) == (True, UNREPORTED), "what is to be logged is not forgotten"
    drive(place.directory.pool.boot.note(NONE))
    place.kill()
    assert (is_kept(place), loss(place)) == (True, NONE)


def test_a_clean_shutdown_keeps_what_is_to_be_logged() -> None:
    place = a_place()
    place.cut_power()
    register(place)
    place.restart()
    assert (is_kept(place), loss(place)) == (True, UNREPORTED)


def test_a_clean_shutdown_outlasts_a_power_cut() -> None:
    place = a_place()
    drive(place.directory.close())
    place.cut_power()
    assert (is_kept(place), loss(place)) == (True, NONE)
    place.kill()
    assert (is_kept(place), loss(place)) == (True, NONE), "the new boot id was recorded"


@pytest.mark.parametrize("waits", range(12))
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_power_cut_while_starting_is_never_taken_for_a_kill(waits: int, is_torn: bool) -> None:
    place = a_place(suspends=True, is_torn=is_torn)
    place.disk = place.disk.power_cut()
    with suppress(PowerCut):
        place.open(waits)
    place.disk = place.disk.power_cut()
    place.open()
    with suppress(PowerCut):  # killed during the start
        place.disk.kill_process()
        place.open(waits)
    place.kill()
    assert (is_kept(place), loss(place)) == (False, UNREGISTERED)


@pytest.mark.parametrize("waits", range(12))
def test_a_kill_while_recovering_from_a_kill_loses_nothing(waits: int) -> None:
    place = a_place(suspends=True)
    place.disk.kill_process()
    with suppress(PowerCut):
        place.open(waits)
    place.kill()
    assert is_kept(place)
    assert place.offsets() == [0, 1, 2]


def test_the_unfinished_batch_of_a_killed_process_is_cut_and_the_rest_trusted() -> None:
    place = a_place()
    path = place.log.path_of(place.log.active, "log")
    file = place.disk.open(path)
    size_bytes, whole = file.size(), file.read(0, file.size())
    for part_bytes in (1, 60, 61, 80):
        file = place.disk.open(path)
        file.write(size_bytes, whole[:part_bytes])
        file.close()
        place.kill()
        assert place.directory.findings.cut
        assert (is_kept(place), place.offsets()) == (True, [0, 1, 2])


def test_a_tail_that_no_kill_leaves_is_distrusted() -> None:
    """Pages that the kernel dropped after a failed writeback, with an unchanged boot id."""
    place = a_place()
    path = place.log.path_of(place.log.active, "log")
    file = place.disk.open(path)
    file.write(file.size() - 20, bytes(20))
    file.close()
    place.disk.kill_process()
    directory = place.open()
    assert (directory.pool.boot.is_kept, directory.pool.boot.loss) == (False, UNREGISTERED)
    place.kill()
    assert (is_kept(place), loss(place)) == (False, UNREGISTERED), "the evidence is cut, and was noted before"


def test_a_missing_segment_is_distrusted() -> None:
    place = a_place()
    place.append_many(60)
    assert len(place.log.segments) > 3
    place.disk.unlink(place.log.path_of(place.log.segments[2], "log"))
    place.kill()
    assert (is_kept(place), loss(place)) == (False, UNREGISTERED)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_log_that_failed_vouches_for_nothing(operation: str) -> None:
    place = a_place()
    place.disk.fail_next(operation, place.log.path_of(place.log.active, "log"))
    with suppress(StorageError):
        place.append()
    place.directory.hurry()
    place.commit()
    assert place.log.offline_reason is not None
    place.kill()
    assert (is_kept(place), loss(place)) == (False, UNREGISTERED)


def test_a_failed_ledger_vouches_for_nothing() -> None:
    place = a_place()
    place.disk.fail_next("sync", place.directory.ledger.path_of(place.directory.ledger.turn))
    place.directory.hurry()
    place.commit()
    place.kill()
    assert not is_kept(place)


@pytest.mark.parametrize("step", ["closing", "opening"])
def test_a_failed_sync_of_everything_vouches_for_nothing(step: str) -> None:
    place = a_place()
    if step == "opening":
        place.disk.kill_process()
    place.disk.fail_next("sync_all")
    with pytest.raises(OSError, match="Input/output"):
        place.open() if step == "opening" else drive(place.directory.close())
    place.kill()
    assert not is_kept(place)


def test_a_mark_stays_whatever_is_noted_meanwhile() -> None:
    place = a_place(suspends=True)
    place.cut_power()
    noting = place.directory.pool.boot.note(UNREPORTED)
    noting.send(None)  # suspended in its sync
    place.directory.pool.boot.fail()
    drive(noting)
    drive(place.directory.pool.boot.note(NONE))
    assert recorded(place) == UNREGISTERED
    place.kill()
    assert not is_kept(place)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_mark_that_cannot_be_written_removes_the_record(code: int) -> None:
    place = a_place()
    place.disk.fail_next("write", BOOT + ".failed", count=2, code=code)
    place.log.fail("a sync failed")
    assert not place.disk.exists(BOOT)
    place.kill()
    assert not is_kept(place)


def test_a_mark_that_the_disk_refuses_altogether_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    place = a_place()
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise OSError(errno.EROFS, "read-only")

        patch.setattr(place.disk, "rename", refuse)
        patch.setattr(place.disk, "unlink", refuse)
        place.log.fail("a sync failed")
        assert recorded(place) == NONE
        place.directory.keep_room()
        assert recorded(place) == NONE
    place.directory.keep_room()
    assert recorded(place) == UNREGISTERED


def test_a_record_that_cannot_be_written_leads_to_distrust() -> None:
    place = a_place()
    drive(place.directory.close())
    place.disk = place.disk.power_cut()
    place.disk.fail_next("write", BOOT + ".new", count=2, code=errno.ENOSPC)
    directory = place.open()
    assert directory.pool.boot.is_kept, "the shutdown was clean"
    place.kill()
    assert not is_kept(place), "nobody knows under which boot it was written"


def test_a_directory_without_a_record_is_distrusted_after_a_kill() -> None:
    """The `boot` file is missing (an older version) or damaged."""
    place = a_place()
    place.disk.unlink(BOOT)
    place.kill()
    assert not is_kept(place)
    place = a_place()
    for position in (40, 150):
        place.flip(BOOT, position)
    with pytest.raises(Damaged):
        recorded(place)
    place.kill()
    assert not is_kept(place)
    assert place.directory.findings.damage == [], "no record of a client is concerned"


def test_a_full_disk_that_has_a_record_has_room_for_the_next() -> None:
    place = a_place()
    used_bytes = place.disk._used()
    place.disk = place.disk.power_cut()
    place.disk.faults.capacity_bytes = used_bytes
    place.reopen()
    assert recorded(place) == UNREGISTERED
    register(place)
    assert recorded(place) == UNREPORTED
    with pytest.raises(DiskFull):
        place.append_many(20)


def test_a_damaged_ledger_is_remembered_until_the_controller_knows() -> None:
    """The next start has a new ledger, in which the damage is not visible."""
    place = a_place()
    for _ in range(4):
        place.append()
        place.directory.hurry()
        place.commit()
    ledger = place.directory.ledger
    place.flip(ledger.path_of(ledger.turn), 2 * ENTRY_BYTES + 9)
    place.kill()
    assert place.directory.findings.doubt
    for _ in range(2):
        assert (is_kept(place), loss(place)) == (False, DAMAGED)
        place.kill()
        assert not place.directory.findings.doubt
    place.directory.pool.boot.fail()
    assert recorded(place) == DAMAGED, "a failed sync is less"
    place.kill()
    register(place)
    place.kill()
    assert (is_kept(place), loss(place)) == (True, UNREPORTED)
