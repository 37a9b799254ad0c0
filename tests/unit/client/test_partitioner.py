"""Keys map to the same partitions as in Kafka's Java client; the vectors are those of Kafka's own tests."""

import pytest

from penstock.client.producer.partitioner import RoundRobin, Sticky, murmur2, partition_for_key
from penstock.host.entropy import HostEntropy

VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("data", "signed"), VECTORS)
def test_murmur2_is_java_s(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_the_sign_is_dropped_before_the_remainder() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert all(0 <= partition_for_key(bytes([n]), 3) < 3 for n in range(256))


class Numbers:
    """An Entropy that returns given numbers."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def token(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)

    def below(self, end: int) -> int:
        return self._numbers.pop(0) % end


def test_sticky_stays_for_a_batch_and_then_moves_by_chance() -> None:
    sticky = Sticky(Numbers(2, 0, 1), switch_bytes=100)
    picks = [sticky.pick("t", 3, [0, 1, 2], 40) for _ in range(7)]
    assert picks == [2, 2, 2, 0, 0, 0, 1]


def test_sticky_leaves_a_partition_that_has_lost_its_leader() -> None:
    sticky = Sticky(Numbers(2, 0), switch_bytes=100)
    assert sticky.pick("t", 3, [0, 1, 2], 1) == 2
    assert sticky.pick("t", 3, [0, 1], 1) == 0


def test_sticky_topics_do_not_share() -> None:
    sticky = Sticky(Numbers(2, 1), switch_bytes=100)
    assert sticky.pick("t", 3, [0, 1, 2], 1) == 2
    assert sticky.pick("u", 3, [0, 1, 2], 1) == 1
    assert sticky.pick("t", 3, [0, 1, 2], 1) == 2


def test_without_any_leader_all_partitions_are_candidates() -> None:
    assert Sticky(Numbers(4), switch_bytes=1).pick("t", 5, [], 1) == 4
    assert 0 <= Sticky(HostEntropy(), switch_bytes=1).pick("t", 5, [], 1) < 5


def test_round_robin_goes_round() -> None:
    robin = RoundRobin()
    assert [robin.pick("t", 3, [0, 2], 1) for _ in range(4)] == [0, 2, 0, 2]
    assert robin.pick("u", 3, [], 1) == 0
