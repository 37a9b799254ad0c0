"""Four clients against a Penstock node: all of them read the records that each one writes, in every codec.

The scenes hold null, empty and large keys and values, headers, many kinds of timestamps and batches of a thousand.
"""

from collections.abc import Callable, Mapping

import pytest

from harness.kafka.oracle import Oracle
from harness.penstock_node import PenstockNode
from harness.raw_client import RawClient
from penstock.records.compression import Codec
from penstock.records.rows import Record
from tests.compatibility.peer_clients import Aiokafka, Java, KafkaPython, Librdkafka, PeerClient
from tests.compatibility.samples import ANY_TIME, SCENES, only

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("penstock-node")]

PEERS: Mapping[str, Callable[[], PeerClient]] = {each.name: each for each in (Librdkafka, Aiokafka, KafkaPython)}
NAMES = [*PEERS, Java.name]


def peer(name: str, oracle: Oracle) -> PeerClient:
    return Java(oracle) if name == Java.name else PEERS[name]()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("writer", NAMES)
def test_what_one_client_writes_all_read(
    writer: str, codec: Codec, penstock: PenstockNode, penstock_client: RawClient, oracle: Oracle
) -> None:
    writing = peer(writer, oracle)
    topic = penstock_client.create_topic(f"{writer}-{codec.name.lower()}".replace(" ", "-"), len(SCENES), ANY_TIME)
    records: dict[int, list[Record]] = {
        partition: only(scene, writing.accepts) for partition, scene in enumerate(SCENES.values())
    }
    writing.write(penstock.bootstrap, topic.name, codec, records)
    ends = {partition: len(written) for partition, written in records.items()}
    for name in NAMES:
        seen = peer(name, oracle).read(penstock.bootstrap, topic.name, ends)
        for partition, written in records.items():
            found = [(s.record.key, s.record.value, tuple(s.record.headers)) for s in seen[partition]]
            assert found == [(r.key, r.value, tuple(r.headers)) for r in written], (name, partition)
            assert [s.record.offset for s in seen[partition]] == list(range(len(written)))
