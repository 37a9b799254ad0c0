"""The open data directory of a node, and the group commit that makes its logs durable."""

import asyncio
import logging

from penstock.log.directory import DataDirectory, open_directory
from penstock.server.partitions.group_commit import GroupCommit
from penstock.server.ports import Ports
from penstock.server.settings import NodeSettings

logger = logging.getLogger("penstock.node")


class Storage:
    """Made by `open_storage`."""

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self.lock = asyncio.Lock()
        """Held during work on segments other than appends: no two tasks remove, truncate or seal a log at once, and no
        task is stopped in the middle of it."""
        self.rounds = GroupCommit(directory)

    @property
    def has_lost_nothing(self) -> bool:
        """Whether every record that the previous run acknowledged is still there."""
        return self.directory.pool.boot.is_kept and not self.directory.findings.doubt


async def open_storage(ports: Ports, settings: NodeSettings) -> Storage:
    """Opens the data directory, and reports damage that was found in it."""
    directory = await open_directory(
        ports.disk,
        cluster_id=settings.cluster_id,
        node_id=settings.node_id,
        entropy=ports.entropy,
        now_ms=ports.clock.wall_ms(),
        ledger_bytes=settings.ledger_bytes,
        reserve_bytes=settings.reserve_bytes,
    )
    for found in directory.findings.damage:
        logger.warning("Damage in the data directory: %s", found)
    return Storage(directory)
