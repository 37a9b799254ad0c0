"""A shop's clicks, orders and payments, the same for the same seed, and among them some that nobody can read.

    python generate.py --events 50000 --rate 2000

Writes to the topics clicks, orders and payments of the broker that PENSTOCK_BOOTSTRAP or `penstock dev` names, and
prints in the end what it has written: how many, how many of them bad, and what was earned on each day.
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from penstock import Client

TOPICS = {"clicks": 3, "orders": 3, "payments": 2}
CITIES = ("Berlin", "Lagos", "Lima", "Osaka", "Paris", "Pune", "Turin")
PAGES = ("home", "search", "shoes", "hats", "basket")
METHODS = ("card", "invoice", "wallet")
OPENED_MS = 1_767_225_600_000
"""2026-01-01."""
STEP_MS = 7_000
"""Of the shop's time, between two events: twelve thousand events are a day."""
POISON_EVERY = 401
WINDOW = 500
TICK_S = 0.05


class Event(NamedTuple):
    """Something that happened."""

    topic: str
    key: str
    value: bytes
    timestamp_ms: int
    is_poison: bool


@dataclass
class Ledger:
    """What was written."""

    records: Counter[str] = field(default_factory=Counter)
    poison: Counter[str] = field(default_factory=Counter)
    revenue_cents: Counter[str] = field(default_factory=Counter)
    """By day of payment, of orders and payments that can be read."""

    def to_json(self) -> str:
        """The ledger as one line of JSON."""
        return json.dumps({name: dict(getattr(self, name)) for name in ("records", "poison", "revenue_cents")})


class Shop:
    """Events, one after another, and the ledger of those that were taken."""

    def __init__(self, seed: int = 1) -> None:
        self.ledger = Ledger()
        self._chance = random.Random(seed)  # noqa: S311 - a shop, not a secret
        self._unpaid: deque[tuple[int, int, bool]] = deque()
        self._number = 0

    def events(self) -> Iterator[Event]:
        """Without an end."""
        while True:
            for _ in range(4):
                yield self._event("clicks", self._click())
            yield self._event("orders", self._order())
            if len(self._unpaid) > 5:
                yield self._payment()

    def _click(self) -> dict[str, object]:
        return {"session": f"s{self._chance.randrange(10_000)}", "page": self._chance.choice(PAGES)}

    def _order(self) -> dict[str, object]:
        cents = 500 + round(self._chance.expovariate(1 / 4000))
        self._unpaid.append((self._number, cents, self._is_poisoned))
        customer = f"customer-{self._chance.randrange(5000)}"
        city = self._chance.choice(CITIES)
        return {"order_id": self._number, "customer": customer, "city": city, "amount_cents": cents}

    def _payment(self) -> Event:
        order_id, cents, is_order_poison = self._unpaid.popleft()
        method = self._chance.choice(METHODS)
        event = self._event("payments", {"order_id": order_id, "amount_cents": cents, "method": method})
        if not event.is_poison and not is_order_poison:
            day = datetime.fromtimestamp(event.timestamp_ms / 1000, UTC).date().isoformat()
            self.ledger.revenue_cents[day] += cents
        return event

    @property
    def _is_poisoned(self) -> bool:
        return self._number % POISON_EVERY == POISON_EVERY // 2

    def _event(self, topic: str, document: dict[str, object]) -> Event:
        """Some are cut off in the middle, as by a writer that died."""
        text = json.dumps(document).encode()
        is_poison = self._is_poisoned
        self.ledger.records[topic] += 1
        self.ledger.poison[topic] += is_poison
        stamp_ms = OPENED_MS + self._number * STEP_MS
        self._number += 1
        key = str(next(iter(document.values())))
        return Event(topic, key, text[:-5] if is_poison else text, stamp_ms, is_poison)


async def create_topics(client: Client) -> None:
    """Those that are not there."""
    known = {each.name for each in await client.topics()}
    for name, partitions in TOPICS.items():
        if name not in known:
            await client.create_topic(name, partitions, configs={"retention.ms": "-1"})  # its times lie far back


async def generate(bootstrap: str | None, shop: Shop, events: int, rate: float) -> None:
    """Writes so many events, about so many each second. A broker that is away for a while is waited for."""
    async with Client(bootstrap) as client:
        await create_topics(client)
        producer = client.producer(linger_ms=20)
        began_s = time.monotonic()
        deliveries = []
        for number, event in zip(range(events), shop.events(), strict=False):
            deliveries.append(
                await producer.send(event.topic, event.value, key=event.key.encode(), timestamp_ms=event.timestamp_ms)
            )
            if len(deliveries) >= WINDOW:
                await asyncio.gather(*deliveries)
                deliveries.clear()
            while number / rate > time.monotonic() - began_s:
                await asyncio.sleep(TICK_S)
        await asyncio.gather(*deliveries)


def main() -> None:
    """As a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000, help="how many to write (default: 50000)")
    parser.add_argument("--rate", type=float, default=2000, help="events per second (default: 2000)")
    parser.add_argument("--bootstrap", help="the broker, as host:port")
    options = parser.parse_args()
    shop = Shop()
    asyncio.run(generate(options.bootstrap, shop, options.events, options.rate))
    print(shop.ledger.to_json())


if __name__ == "__main__":
    main()
