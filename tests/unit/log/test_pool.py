"""Open files and maps: bounded in number; an evicted file is opened again."""

import pytest

from penstock.host.memory import MemoryDisk
from penstock.log.checked import Damaged
from penstock.log.index import ActiveIndex
from penstock.log.pool import Pool
from tests.simulation.log.histories import drive
from tests.unit.log.place import Place


def with_indexes(disk: MemoryDisk, count: int) -> None:
    for number in range(count):
        index = ActiveIndex()
        index.add(1, number + 1, 0)
        file = disk.open(f"{number}.index", create=True)
        file.write(0, index.sealed())
        file.close()


def test_no_more_files_are_open_than_may_be() -> None:
    disk = MemoryDisk()
    pool = Pool(disk, files_open_max=3)
    for number in range(10):
        pool.file(f"{number}", create=True).write(0, b"%d" % number)
        assert pool.files_open <= 3
        assert disk.open_count == pool.files_open
    for number in range(10):
        assert pool.file(f"{number}").read(0, 1) == b"%d" % number
    pool.close()
    assert disk.open_count == 0


def test_the_least_recently_used_gives_way() -> None:
    pool = Pool(MemoryDisk(), files_open_max=2)
    first = pool.file("a", create=True)
    pool.file("b", create=True)
    assert pool.file("a") is first
    pool.file("c", create=True)  # evicts b
    assert pool.file("a") is first


def test_a_file_that_is_pinned_stays_usable_after_it_gave_way() -> None:
    disk = MemoryDisk()
    pool = Pool(disk, files_open_max=1)
    file = pool.file("a", create=True)
    file.write(0, b"text")
    file.pin()
    pool.file("b", create=True)
    assert file.read(0, 4) == b"text"
    assert disk.open_count == 2
    file.unpin()
    assert disk.open_count == 1


def test_a_dirty_file_that_gave_way_is_synced_through_its_new_descriptor() -> None:
    place = Place()
    pool = Pool(place.disk, files_open_max=1)
    pool.file("a", create=True).write(0, b"text")
    pool.file("b", create=True)
    drive(pool.file("a").sync())
    drive(place.disk.sync_dir(""))
    assert Pool(place.disk.power_cut()).file("a").read(0, 10) == b"text"


def test_a_missing_file_is_not_made_by_looking() -> None:
    pool = Pool(MemoryDisk())
    with pytest.raises(FileNotFoundError):
        pool.file("a")
    with pytest.raises(FileNotFoundError):
        pool.index("a.index")
    assert pool.files_open == pool.maps_open == 0


def test_no_more_maps_are_open_than_may_be() -> None:
    disk = MemoryDisk()
    with_indexes(disk, 10)
    pool = Pool(disk, maps_open_max=3)
    for _ in range(2):
        for number in range(10):
            assert pool.index(f"{number}.index").position_for_offset(1) == number + 1
            assert pool.maps_open <= 3
    assert pool.index("9.index") is pool.index("9.index")
    pool.close()
    assert disk.open_count == pool.maps_open == 0


def test_a_damaged_index_is_not_kept() -> None:
    disk = MemoryDisk()
    file = disk.open("x.index", create=True)
    file.write(0, b"nonsense")
    file.close()
    pool = Pool(disk)
    with pytest.raises(Damaged, match=r"x\.index"):
        pool.index("x.index")
    assert pool.maps_open == 0


def test_what_is_forgotten_is_read_anew() -> None:
    """After a file was replaced, the old map must not be used for the new file."""
    disk = MemoryDisk()
    with_indexes(disk, 2)
    pool = Pool(disk)
    assert pool.index("0.index").position_for_offset(1) == 1
    disk.rename("1.index", "0.index")
    pool.forget("0.index")
    pool.forget("0.index")
    assert pool.index("0.index").position_for_offset(1) == 2
