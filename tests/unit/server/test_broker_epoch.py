"""A broker stores its epoch across restarts, and claims none if it cannot read it."""

import asyncio
import errno
from random import Random

import pytest

from penstock.host.faults import Faults
from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log.space import Reserve
from penstock.server.membership.broker_epoch import BROKER_EPOCH, NO_EPOCH, load_epoch, store_epoch


def a_disk() -> LossyDisk:
    return LossyDisk(MemoryDisk(), Random(1), Faults(is_torn=True))


def store(disk: LossyDisk, epoch: int) -> None:
    asyncio.run(store_epoch(disk, epoch, Reserve(disk, 0)))


def test_it_outlives_a_power_cut() -> None:
    disk = a_disk()
    assert load_epoch(disk) == NO_EPOCH
    store(disk, 41)
    store(disk, 97)
    assert load_epoch(disk.power_cut()) == 97


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_if_it_cannot_be_kept_the_next_life_claims_less_and_this_one_goes_on(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = a_disk()
    store(disk, 41)
    disk.fail_next("write", f"{BROKER_EPOCH}.new", count=2, code=code)
    store(disk, 97)
    assert load_epoch(disk) == 41
    assert "cannot be kept" in caplog.text


def test_what_cannot_be_read_is_no_claim(caplog: pytest.LogCaptureFixture) -> None:
    disk = a_disk()
    store(disk, 41)
    file = disk.open(BROKER_EPOCH)
    file.write(0, bytes(file.size()))
    assert load_epoch(disk) == NO_EPOCH
    assert "may have lost something" in caplog.text
