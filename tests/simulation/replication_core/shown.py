"""Messages between replicas in readable form, without default values."""

from typing import Any

from penstock.metadata.cluster_commands import AlterPartition
from penstock.model.errors import ErrorCode
from penstock.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from tests.simulation.replication_core.disk import Records


def show_fetch(request: FetchRequest) -> str:
    kind = "Fetch" if request.session_epoch == 0 else f"Fetch {request.session_epoch} of session"
    parts = [
        f"{each.partition} from {each.fetch_offset} behind epoch {each.last_fetched_epoch}, "
        f"leader epoch {each.current_leader_epoch}"
        + (f", log from {each.log_start_offset}" if each.log_start_offset else "")
        for topic in request.topics
        for each in topic.partitions
    ]
    parts += [f"no more {number}" for topic in request.forgotten_topics_data for number in topic.partitions]
    return f"{kind}: {'; '.join(parts) or 'as before'}"


def show_found(response: FetchResponse) -> str:
    if response.error_code is not ErrorCode.NONE:
        return f"Fetched: {response.error_code.name}"
    parts = [_found(each) for topic in response.responses for each in topic.partitions]
    return f"Fetched: {'; '.join(parts) or 'nothing new'}"


def _found(found: PartitionData) -> str:
    if found.error_code is not ErrorCode.NONE:
        return f"{found.partition_index} {found.error_code.name}"
    if found.diverging_epoch.epoch >= 0:
        return f"{found.partition_index} parts behind epoch {found.diverging_epoch.epoch}, which ends here at " + str(
            found.diverging_epoch.end_offset
        )
    records: Any = found.records
    what = ""
    if isinstance(records, Records):
        what = f" from {records.base_offset}: {' '.join(f'[{each.epoch} {each.value}]' for each in records.entries)},"
    start = _start(found.log_start_offset)
    return f"{found.partition_index}{what} committed up to {found.high_watermark}{start}"


def _start(log_start_offset: int) -> str:
    return f", log from {log_start_offset}" if log_start_offset > 0 else ""


def show_change(command: AlterPartition) -> str:
    return "; ".join(
        f"{each.index} in sync {[broker_id for broker_id, _ in each.isr]}, leader epoch {each.leader_epoch}, "
        f"partition epoch {each.partition_epoch}"
        for each in command.partitions
    )
