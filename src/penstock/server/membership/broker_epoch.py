"""The file `broker-epoch`: the last broker epoch of this directory, stored before the broker is unfenced.

The directory holds every record the broker acknowledged if the broker was not active in a later epoch: a directory that
was restored from a copy has an earlier one. The metadata log cannot show this. It may have lost its end when all nodes
lost power, and once it has caught up it contains registrations whose records are not in this directory.
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
    """The epoch of the last registration; NO_EPOCH if there was none, or the file is unreadable."""
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
    """Writes the epoch to stable storage. After a failure the next registration claims an earlier epoch."""
    try:
        await checked.replace(disk, BROKER_EPOCH, BROKER_EPOCH, _VERSION, {"epoch": epoch}, reserve)
    except (DiskFull, OSError) as trouble:
        logger.warning("The epoch of this broker cannot be kept, which matters if all nodes lose power: %s.", trouble)
