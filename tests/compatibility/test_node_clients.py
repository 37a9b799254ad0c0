"""Four clients against a Penstock node: what one of them writes, in any codec, all of them read.

The scenes hold null, empty and large keys and values, headers, all sorts of timestamps and batches of a thousand.
"""

from collections.abc import Callable, Mapping

import pytest

from penstock.records.compression import Codec
from penstock.records.rows import Record
from tests.compatibility.oracle import Oracle
from tests.compatibility.penstock_node import PenstockNode
from tests.compatibility.raw_client import RawClient
from tests.compatibility.samples import ANY_TIME, SCENES, only
from tests.compatibility.strangers import Aiokafka, Java, KafkaPython, Librdkafka, Stranger

pytestmark = [pytest.mark.strangers, pytest.mark.xdist_group("penstock-node")]

STRANGERS: Mapping[str, Callable[[], Stranger]] = {each.name: each for each in (Librdkafka, Aiokafka, KafkaPython)}
NAMES = [*STRANGERS, Java.name]


def stranger(name: str, oracle: Oracle) -> Stranger:
    return Java(oracle) if name == Java.name else STRANGERS[name]()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("writer", NAMES)
def test_what_one_client_writes_all_read(
    writer: str, codec: Codec, penstock: PenstockNode, penstock_client: RawClient, oracle: Oracle
) -> None:
    writing = stranger(writer, oracle)
    topic = penstock_client.create_topic(f"{writer}-{codec.name.lower()}".replace(" ", "-"), len(SCENES), ANY_TIME)
    records: dict[int, list[Record]] = {
        partition: only(scene, writing.accepts) for partition, scene in enumerate(SCENES.values())
    }
    writing.write(penstock.bootstrap, topic.name, codec, records)
    ends = {partition: len(written) for partition, written in records.items()}
    for name in NAMES:
        seen = stranger(name, oracle).read(penstock.bootstrap, topic.name, ends)
        for partition, written in records.items():
            found = [(s.record.key, s.record.value, tuple(s.record.headers)) for s in seen[partition]]
            assert found == [(r.key, r.value, tuple(r.headers)) for r in written], (name, partition)
            assert [s.record.offset for s in seen[partition]] == list(range(len(written)))
