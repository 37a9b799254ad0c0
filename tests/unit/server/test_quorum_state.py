"""The quorum state on disk: replaced where there is space, overwritten in place where there is none."""

import asyncio
import errno
from random import Random

import pytest

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.model.errors import DiskFull
from penstock.raft.replicas import ReplicaKey
from penstock.raft.roles import QuorumState
from penstock.server.quorum.quorum_state import QUORUM_STATE, load_state, store_state

KEY = ReplicaKey(7, bytes(range(16)))
STATES = [QuorumState(), QuorumState(9, 1), QuorumState(10, -1, KEY), QuorumState(2**31 - 1, 2**31 - 1, KEY)]


def a_disk(seed: int = 1) -> LossyDisk:
    return LossyDisk(MemoryDisk(), Random(seed), Faults(is_torn=True))


def fill(disk: LossyDisk) -> None:
    disk.fail_next("write", f"{QUORUM_STATE}.new", count=2, code=errno.ENOSPC)


@pytest.mark.parametrize("state", STATES)
def test_what_was_stored_is_loaded_with_room_and_without(state: QuorumState) -> None:
    disk = a_disk()
    asyncio.run(store_state(disk, QuorumState(1, 2)))
    asyncio.run(store_state(disk, state))
    assert load_state(disk) == state
    fill(disk)
    asyncio.run(store_state(disk, QuorumState(2**31 - 1, 5)))
    assert load_state(disk.power_cut()) == QuorumState(2**31 - 1, 5)


def test_a_full_disk_that_never_had_the_file_says_so() -> None:
    disk = a_disk()
    fill(disk)
    with pytest.raises(DiskFull):
        asyncio.run(store_state(disk, QuorumState(1)))


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_while_it_is_written_over_leaves_the_old_state_or_the_new_one(seed: int) -> None:
    disk = a_disk(seed)
    old, new = QuorumState(4, 1, KEY), QuorumState(5, -1, KEY)
    asyncio.run(store_state(disk, old))
    fill(disk)
    file = disk.open(QUORUM_STATE)
    before = file.read(0, file.size())
    asyncio.run(store_state(disk, new))
    after = file.read(0, file.size())
    for torn in range(0, 513, 64):  # the first copy is written before the second, with a sync in between
        file.write(0, after[:torn] + before[torn:])
        assert load_state(disk) in (old, new)
        file.write(0, after[:512] + after[512 : 512 + torn] + before[512 + torn :])
        assert load_state(disk) == new
    file.close()
