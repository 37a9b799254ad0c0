"""Creating a topic in a large cluster, in microseconds: the image alone, and the controller from command to image.

    python -m benchmarks.micro.bench_metadata [--json]

Each is compared with the same in an empty cluster: the size of the cluster should hardly matter.
"""

from collections.abc import Callable
from itertools import count

from benchmarks.micro.timing import Row, compare, report
from harness.metadata_world import NOW_MS, ControllerWorld
from penstock.metadata.changes import changes_between
from penstock.metadata.commands import CreateTopics, NewTopic
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.draft import applied
from penstock.metadata.image import Image
from penstock.metadata.records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

LIMIT_US = 1000
SIZES = ((100_000, 1), (10_000, 10), (1_000, 100), (100_000, 10))
"""Number of topics, and partitions per topic."""


def topic(number: int, partitions: int) -> list[MetadataRecord]:
    topic_id = number.to_bytes(16, "big")
    return [
        TopicRecord(name=f"topic-{number}", topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=(1, 2, 3),
                isr=(1, 2, 3),
                removing_replicas=(),
                adding_replicas=(),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=(bytes(16),) * 3,
            )
            for index in range(partitions)
        ),
    ]


def image_rows(topics: int, partitions: int) -> list[Row]:
    empty = applied(Image(), topic(0, 1))
    full = applied(Image(), (record for number in range(topics) for record in topic(number, partitions)))
    where = f"{topics:,} × {partitions}"
    rows = []
    for size in (1, 10, 100):
        records = topic(topics, size)
        rows.append(
            compare(
                f"image, {where}: topic of {size} created",
                lambda records=records: applied(full, records),  # type: ignore[misc]
                lambda records=records: applied(empty, records),  # type: ignore[misc]
                "empty",
                LIMIT_US,
            )
        )
    led = [PartitionChangeRecord(partition_id=0, topic_id=bytes(16), leader=2, isr=(2, 3))]
    gone = [RemoveTopicRecord(topic_id=bytes(16))]
    rows.append(
        compare(f"image, {where}: leader changed", lambda: applied(full, led), lambda: applied(empty, led), "empty")
    )
    rows.append(
        compare(f"image, {where}: topic deleted", lambda: applied(full, gone), lambda: applied(empty, gone), "empty")
    )
    later, later_empty = applied(full, topic(topics, 1)), applied(empty, topic(topics, 1))
    rows.append(
        compare(
            f"image, {where}: what changed",
            lambda: changes_between(full, later),
            lambda: changes_between(empty, later_empty),
            "empty",
        )
    )
    return rows


def controller(topics: int) -> Callable[[int], Callable[[], None]]:
    world = ControllerWorld()
    names = count()
    for _ in range(topics // 100):
        world.ask(CreateTopics(tuple(NewTopic(f"topic-{next(names)}", 10) for _ in range(100))))

    def creating(partitions: int) -> Callable[[], None]:
        def create() -> None:
            command = CreateTopics((NewTopic(f"topic-{next(names)}", partitions),))
            for record in world.controller.decide(command, NOW_MS).records:
                world.controller.apply(record)
            assert world.controller.image

        return create

    return creating


def main() -> None:
    for topics, partitions in SIZES:
        report(image_rows(topics, partitions))
    full, empty = controller(10_000), controller(0)
    report(
        [
            compare(
                f"controller, 10,000 × 10: topic of {size} decided and applied", full(size), empty(size), "empty", limit
            )
            for size, limit in ((1, LIMIT_US), (10, LIMIT_US), (100, None))
        ]
    )


if __name__ == "__main__":
    main()
