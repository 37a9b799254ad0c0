"""The shop's ledger matches its events; a chart is drawn of any run."""

import json
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from xml.etree import ElementTree

from examples.shop.generate import TOPICS, Event, Shop
from examples.shop.picture import Sample, Story, picture

EVENTS = 30_000


def readable(event: Event) -> dict[str, int] | None:
    try:
        found: dict[str, int] = json.loads(event.value)
    except ValueError:
        return None
    return found


def test_the_ledger_is_what_whoever_reads_the_events_would_find() -> None:
    shop = Shop()
    events = list(islice(shop.events(), EVENTS))
    assert Counter(each.topic for each in events) == shop.ledger.records
    assert Counter(each.topic for each in events if readable(each) is None) == shop.ledger.poison
    assert set(shop.ledger.poison) == set(TOPICS), "every topic has some that cannot be read"
    orders = {order["order_id"] for each in events if each.topic == "orders" and (order := readable(each))}
    revenue: Counter[str] = Counter()
    for each in events:
        payment = readable(each) if each.topic == "payments" else None
        if payment is not None and payment["order_id"] in orders:
            day = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC).date().isoformat()
            revenue[day] += payment["amount_cents"]
    assert revenue == shop.ledger.revenue_cents
    assert len(revenue) == 3, "three days"


def test_the_same_seed_is_the_same_shop() -> None:
    first, again, other = (list(islice(Shop(seed).events(), 1000)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_picture_is_drawn_of_a_run() -> None:
    samples = [Sample(at_s / 4, 100 * at_s, {"clicks": 60 * at_s, "orders": 9 * at_s}) for at_s in range(80)]
    drawn = picture(Story(samples, [(5.0, "a <broker> is killed")], 3, ["clicks_audit: equal"]))
    texts = [each.text for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert "a <broker> is killed" in texts
    assert "4,740 rows, each once" in texts
