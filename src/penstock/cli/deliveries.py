"""Where records went, by partition: `orders[0]@5-9`."""

import asyncio
from typing import TypedDict

from penstock.client.sender import Delivery


class Row(TypedDict):
    """The records of one partition; offsets are -1 where no answer tells them."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int


class Deliveries:
    """Collects them as they come; `error` is the first that went wrong."""

    def __init__(self) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self._rows: dict[int, Row] = {}
        self._open = 0
        self._all_in = asyncio.Event()

    @property
    def rows(self) -> list[Row]:
        """By partition."""
        return [self._rows[partition] for partition in sorted(self._rows)]

    @staticmethod
    def shown(row: Row) -> str:
        """For people. Others may write between the first and the last, hence the count."""
        first, last, count = row["first_offset"], row["last_offset"], row["records"]
        place = f"{row['topic']}[{row['partition']}]"
        if first < 0:
            return f"{place}  {count} record{'s' * (count != 1)}, not acknowledged"
        return f"{place}@{first}" if count == 1 else f"{place}@{first}-{last}  {count} records"

    def watch(self, sent: "asyncio.Future[Delivery]") -> None:
        """Takes note when it is delivered."""
        self._open += 1
        sent.add_done_callback(self._note)

    async def settled(self) -> None:
        """When all that is watched has come to an end."""
        while self._open:
            self._all_in.clear()
            await self._all_in.wait()

    def _note(self, sent: "asyncio.Future[Delivery]") -> None:
        self._open -= 1
        self._all_in.set()
        if sent.cancelled():
            return
        if (error := sent.exception()) is not None:
            self.error = self.error or error
            return
        self.count += 1
        topic, partition, offset, _ = sent.result()
        row = self._rows.get(partition)
        if row is None:
            self._rows[partition] = Row(
                topic=topic, partition=partition, records=1, first_offset=offset, last_offset=offset
            )
        else:
            row["records"] += 1
            row["first_offset"] = min(row["first_offset"], offset)
            row["last_offset"] = max(row["last_offset"], offset)
