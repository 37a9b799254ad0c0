"""Offsets of delivered records, by partition: `orders[0]@5-9`."""

import asyncio
from typing import TypedDict

from penstock.client.producer.sender import Delivery


class Row(TypedDict):
    """The records of one partition; offsets are -1 if there are no acknowledgements."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int


class Deliveries:
    """Collects deliveries as they complete; `error` is the first failure."""

    def __init__(self) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self._rows: dict[int, Row] = {}
        self._open = 0
        self._all_in = asyncio.Event()

    @property
    def rows(self) -> list[Row]:
        """The rows, ordered by partition."""
        return [self._rows[partition] for partition in sorted(self._rows)]

    @staticmethod
    def shown(row: Row) -> str:
        """A row for people. Other producers may write between the first and the last offset, hence the count."""
        first, last, count = row["first_offset"], row["last_offset"], row["records"]
        place = f"{row['topic']}[{row['partition']}]"
        if first < 0:
            return f"{place}  {count} record{'s' * (count != 1)}, not acknowledged"
        return f"{place}@{first}" if count == 1 else f"{place}@{first}-{last}  {count} records"

    def watch(self, sent: "asyncio.Future[Delivery]") -> None:
        """Adds a send, to be counted when it is delivered."""
        self._open += 1
        sent.add_done_callback(self._note)

    async def settled(self) -> None:
        """Waits until all watched sends have completed."""
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
