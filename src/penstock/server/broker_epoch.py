"""The file `broker-epoch`: the last epoch in which this directory was a broker's, kept before the cluster lets it in.

What a broker has on its disk is all that its last life acknowledged, if nothing of that is newer than the epoch here: a
directory that was put back from a copy knows an earlier one. The metadata log cannot tell. It may be shorter than what
the cluster knew when all nodes lost their power, and after a while it knows of lives whose records are not here.
"""

import logging
from typing import Final

from penstock.log import checked
from penstock.log.space import Reserve
from penstock.model.errors import DiskFull
from penstock.model.ports import Disk

BROKER_EPOCH: Final = "broker-epoch"
NO_EPOCH: Final = -1
_VERSION: Final = 1

logger = logging.getLogger("penstock.membership")


def load_epoch(disk: Disk) -> int:
    """The epoch of the last life; none if there was none, or nobody can read any more what it was."""
    if not disk.exists(BROKER_EPOCH):
        return NO_EPOCH
    try:
        found = checked.read(disk, BROKER_EPOCH, BROKER_EPOCH, _VERSION).value["epoch"]
    except (checked.Damaged, OSError) as trouble:
        logger.warning("%s; the cluster will take this broker for one that may have lost something.", trouble)
        return NO_EPOCH
    assert isinstance(found, int)
    return found


async def store_epoch(disk: Disk, epoch: int, reserve: Reserve) -> None:
    """Returns when it is on stable storage, or cannot be: then the next life will claim less than it could."""
    try:
        await checked.replace(disk, BROKER_EPOCH, BROKER_EPOCH, _VERSION, {"epoch": epoch}, reserve)
    except (DiskFull, OSError) as trouble:
        logger.warning("The epoch of this broker cannot be kept, which matters if all nodes lose power: %s.", trouble)
