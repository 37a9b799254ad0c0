"""Sends the records of the input: batched from a file or a pipe, acknowledged line by line at a terminal."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import typer

from penstock.cli.errors import Failed
from penstock.cli.produce.deliveries import Deliveries
from penstock.cli.produce.parsing import BadLine, Outgoing, Parse
from penstock.client.errors import BufferFull, Refused
from penstock.client.producer.producer import Producer
from penstock.client.producer.sender import Delivery
from penstock.model.errors import ErrorCode

Lines = AsyncIterator[list[bytes]]


async def send_batched(
    producer: Producer, topic: str, input_lines: Lines, parse: Parse, counted: Callable[[int, int], None]
) -> Deliveries:
    """Sends all lines; stops at the first bad line or failed delivery, which is the error of the deliveries.

    `counted` is called with numbers of records and of bytes of input.
    """
    deliveries = Deliveries()
    try:
        async for lines in input_lines:
            for line in lines:
                if (record := parse(line)) is not None:
                    deliveries.watch(await _send(producer, topic, record))
            counted(len(lines), len(lines) + sum(map(len, lines)))
            if deliveries.error is not None:
                break
    except (Failed, Refused, BufferFull) as error:
        deliveries.error = deliveries.error or error
    await producer.flush()
    await deliveries.settled()
    return deliveries


async def send_by_line(
    producer: Producer, topic: str, input_lines: Lines, parse: Parse, tell: Callable[[str], None]
) -> Deliveries:
    """Sends the lines that somebody types, and reports each as it is acknowledged; a bad line can be typed again."""
    deliveries = Deliveries()
    async for lines in input_lines:
        sent: list[asyncio.Future[Delivery]] = []
        for line in lines:
            try:
                record = parse(line)
            except BadLine as bad:
                typer.echo(f"Not sent: {bad}.", err=True)
                continue
            if record is not None:
                sent.append(await _send(producer, topic, record))
                deliveries.watch(sent[-1])
        await _acknowledged(sent, tell)
    return deliveries


async def _acknowledged(sent: Sequence[asyncio.Future[Delivery]], tell: Callable[[str], None]) -> None:
    for each in sent:
        delivery = await each
        place = f"{delivery.topic}[{delivery.partition}]"
        tell(f"{place}@{delivery.offset}" if delivery.offset >= 0 else f"{place}  sent, not acknowledged")


async def _send(producer: Producer, topic: str, record: Outgoing) -> "asyncio.Future[Delivery]":
    try:
        return await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
    except Refused as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and record.partition is not None:
            raise Failed(
                f"{str(error).rstrip('.')}: create it with more partitions, or name one that it has (-p); with -f json "
                "--choose-partitions ignores the partitions of the lines"
            ) from error
        raise
