"""Scrubbing: a full read reports every file that changed by itself, and changes nothing."""

import pytest

from penstock.log.scrub import scrub
from penstock.records.control import ControlType
from tests.simulation.log.histories import drive
from tests.unit.log.place import Place, from_producer


def a_settled_log() -> Place:
    place = Place()
    for sequence in range(25):
        place.append(from_producer(5, sequence, is_transactional=sequence == 2))
        if sequence == 2:
            place.end(ControlType.ABORT, 5)
    place.commit()
    place.settle()
    return place


def test_a_healthy_log_has_nothing_to_tell() -> None:
    place = a_settled_log()
    assert scrub(place.log, place.disk) == []
    place.restart()
    assert scrub(place.log, place.disk) == []


@pytest.mark.parametrize("ending", [".log", ".index", ".producers", "manifest"])
def test_every_flipped_bit_is_named_by_its_file(ending: str) -> None:
    """Also in the bytes that a batch's own checksum does not cover: offset, length, epoch."""
    place = a_settled_log()
    drive(place.disk.sync_all())
    for name in place.files(ending)[:2]:
        path = f"{place.log.path}/{name}"
        file = place.disk.open(path)
        size_bytes = file.size()
        file.close()
        for position in range(0, size_bytes, 1 if size_bytes < 500 else 3):
            bit = position % 8
            place.disk.flip_bit(path, position, bit)
            found = scrub(place.log, place.disk)
            assert len(found) == 1
            assert found[0].startswith(path)
            place.disk.flip_bit(path, position, bit)
    assert scrub(place.log, place.disk) == []


@pytest.mark.parametrize("ending", [".log", ".index", ".producers"])
def test_a_missing_file_is_named(ending: str) -> None:
    place = a_settled_log()
    path = f"{place.log.path}/{place.files(ending)[0]}"
    place.disk.unlink(path)
    found = scrub(place.log, place.disk)
    assert len(found) == 1
    assert path in found[0]


def test_nothing_is_repaired_and_nothing_is_cut() -> None:
    place = a_settled_log()
    path = place.log.path_of(place.log.segments[0], "log")
    place.flip(path, 500)
    file = place.disk.open(path)
    before = file.read(0, file.size())
    assert len(scrub(place.log, place.disk)) == 1
    assert file.read(0, file.size()) == before
    file.close()
    assert place.log.offline_reason is None


def test_one_damaged_segment_does_not_hide_the_next() -> None:
    place = a_settled_log()
    for segment in place.log.segments[:2]:
        place.flip(place.log.path_of(segment, "log"), 300)
    assert len(scrub(place.log, place.disk)) == 2


def test_files_are_given_back() -> None:
    place = a_settled_log()
    open_count = place.disk.open_count
    place.flip(place.log.path_of(place.log.segments[0], "log"), 300)
    scrub(place.log, place.disk)
    assert place.disk.open_count == open_count
