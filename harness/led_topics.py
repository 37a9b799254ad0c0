"""Topics that a node leads without a controller, for tests and benchmarks of a single node."""

from penstock.log.settings import DEFAULT_SETTINGS, LogSettings
from penstock.server.node import Node
from penstock.server.partitions.partition import Partition


async def add_topic(
    node: Node, name: str, topic_id: bytes, partitions: int, settings: LogSettings = DEFAULT_SETTINGS, epoch: int = 0
) -> list[Partition]:
    """Makes the node the leader of a topic's partitions, and creates the logs that are missing."""
    directory, added = node.storage.directory, []
    for index in range(partitions):
        log = directory.logs.get(f"{name}-{index}")
        if log is None:
            log = await directory.create(name, topic_id.hex(), index, settings)
        await directory.begin_epoch(log, epoch)
        partition = Partition(name, topic_id, index, log, max(epoch, log.epochs.latest))
        node.broker.partitions.add(partition)
        partition.advance()
        added.append(partition)
    return added
