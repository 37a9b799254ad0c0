"""The clients of the matrix, in the order of the compatibility page. A client that cannot be imported fails by name."""

import importlib
from collections.abc import Mapping, Sequence

from tests.compatibility.rows.row import OF_MEMBERS, Member, Operation, Row

MODULES: Sequence[str] = ("librdkafka", "aiokafka", "kafka_python", "java", "kcat", "franz_go", "kafka_tools", "spark")

NEEDS: Mapping[Operation, str] = {
    Operation.CREATE_TOPIC: "create_topic",
    Operation.DESCRIBE_TOPIC: "describe_topic",
    Operation.ALTER_TOPIC: "alter_topic",
    Operation.ADD_PARTITIONS: "add_partitions",
    Operation.DELETE_TOPIC: "delete_topic",
    Operation.CONSUME_OFFSET: "consume",
    Operation.CONSUME_TIMESTAMP: "consume_since",
    Operation.DELETE_RECORDS: "delete_records",
    Operation.DESCRIBE_GROUP: "describe_group",
    Operation.RESET_GROUP: "reset_group",
    Operation.DELETE_GROUP_OFFSETS: "delete_group_offsets",
    Operation.DELETE_GROUP: "delete_group",
}
"""The method that an operation needs; for all others it is `produce`, or a method of a member."""
MEMBER_NEEDS: Mapping[str, str] = {
    "SHARE": "leave",
    "STATIC": "leave",
    "COMMIT_SYNC": "commit",
    "COMMIT_ASYNC": "commit_async",
    "COMMIT_AUTO": "poll",
    "SEEK": "seek",
    "PAUSE": "pause",
}
"""The same for the operations of members, in both protocols."""


def row_class(module: str) -> type[Row]:
    """The one row of a module."""
    found = vars(importlib.import_module(f"{__package__}.{module}"))
    (row,) = (
        each
        for each in found.values()
        if isinstance(each, type) and issubclass(each, Row) and each.__module__ == found["__name__"]
    )
    return row


def offers(row: type[Row], operation: Operation) -> bool:
    """Whether the row overrides the method that the operation needs."""
    if operation in OF_MEMBERS:
        protocol, _, what = operation.name.partition("_")
        method = MEMBER_NEEDS[what]
        return (
            row.member is not None
            and protocol.lower() in row.protocols
            and getattr(row.member, method) is not getattr(Member, method)
        )
    method = NEEDS.get(operation, "produce")
    return getattr(row, method) is not getattr(Row, method)
