"""The file that writes a topic to a table, and a sample topic: orders in JSON, a few of which cannot be decoded."""

import asyncio
import json
import random
import re
from pathlib import Path

from penstock.client.blocking import SyncClient
from penstock.client.errors import Refused
from penstock.client.producer.producer import Producer
from penstock.model.errors import ErrorCode

TOPIC = "orders"
PARTITIONS = 3
RECORDS = 100_000
BAD = 3
DAYS = 3
DAY_MS = 86_400_000
SCHEMA = "order_id BIGINT, customer STRING, city STRING, amount DOUBLE"
CITIES = ("Berlin", "Lagos", "Lima", "Osaka", "Paris", "Pune", "Turin")

TEMPLATE = """\
# penstock.yml: what `penstock spark run` does. `penstock spark check` says what is wrong with it.
version: 1
cluster:
{bootstrap}
spark:
  master: local[*]                  # or spark://host:7077, k8s://…
  checkpoints: .penstock/checkpoints
  memory: 2g
pipelines:
  {name}:
    kind: lake
    from: {{topic: {topic}, start: earliest}}
    decode: {{key: text, value: json, schema: {schema}}}
    to: {{delta: lake/{topic}, partition_by: [day]}}
    trigger: 10 seconds
    max_batch: 2 GB
    on_bad_record: {{dlq: {topic}.dlq}}
    on_gap: fail
"""
FOUND = (
    "  # Without bootstrap: PENSTOCK_CONTEXT, PENSTOCK_BOOTSTRAP, the nearest .penstock/endpoint from here upwards\n"
    "  # (of `penstock dev` or `penstock sandbox up`), the context in use, or localhost:9092."
)


def template(topic: str, bootstrap: str | None, schema: str = SCHEMA) -> str:
    """The text of the file."""
    line = f"{FOUND}\n  kafka: {{}}" if bootstrap is None else f"  bootstrap: [{bootstrap}]"
    quoted = json.dumps(schema, ensure_ascii=False)
    return TEMPLATE.format(bootstrap=line, topic=topic, name=pipeline_name(topic), schema=quoted)


def pipeline_name(topic: str) -> str:
    """The name of a topic's pipeline: a topic may have characters that a pipeline's name may not have."""
    name = f"{re.sub(r'[^A-Za-z0-9_-]', '_', topic)}_lake"
    return name if name[0].isalpha() else f"topic_{name}"


def write_file(path: Path, text: str) -> None:
    """Writes a file; raises FileExistsError if it exists."""
    with path.open("x", encoding="utf-8") as file:
        file.write(text)


def create(client: SyncClient, topic: str) -> None:
    """Creates the topic if it is missing."""
    try:
        client.create_topic(topic, PARTITIONS)
    except Refused as refused:
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def fill(client: SyncClient, topic: str, records: int, now_ms: int) -> None:
    """Writes sample records."""
    client.run(_filled(client, topic, records, now_ms))


async def _filled(client: SyncClient, topic: str, records: int, now_ms: int) -> None:
    chance = random.Random(1)  # noqa: S311 - a sample
    producer = Producer(client.admin.cluster)
    deliveries = []
    try:
        for number in range(records):
            key, value = sample(number, records, chance)
            stamp_ms = now_ms - DAYS * DAY_MS + DAYS * DAY_MS * number // records
            deliveries.append(await producer.send(topic, value, key=key, timestamp_ms=stamp_ms))
            if len(deliveries) >= 10_000:
                await asyncio.gather(*deliveries)
                deliveries.clear()
        await asyncio.gather(*deliveries)
    finally:
        await producer.close()


def sample(number: int, records: int, chance: random.Random) -> tuple[bytes, bytes]:
    """An order; a few are truncated."""
    customer = f"customer-{chance.randrange(5000)}"
    order = {
        "order_id": number,
        "customer": customer,
        "city": chance.choice(CITIES),
        "amount": round(chance.expovariate(0.02), 2),
    }
    value = json.dumps(order).encode()
    is_bad = number % max(1, records // BAD) == records // BAD // 2
    return customer.encode(), value[:-7] if is_bad else value
