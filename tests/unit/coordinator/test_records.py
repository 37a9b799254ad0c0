"""Records of `__consumer_offsets` in Kafka's format, and the partition of a group."""

import pytest

from penstock.coordinator.placement import java_hash, partition_of
from penstock.coordinator.records import KEYS, VALUES, GroupRecord, decode_record, encode_record, value_as
from penstock.model.errors import MalformedMessage
from penstock.wire import codec
from penstock.wire.declare import StoredKey, StoredValue
from penstock.wire.stored import consumer_groups, consumer_offsets
from penstock.wire.stored.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)


def test_a_committed_offset_lies_in_the_log_as_burrow_reads_it() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=2)
    value = OffsetCommitValue(offset=7, leader_epoch=3, metadata="m", commit_timestamp=9)
    stored = encode_record(GroupRecord(key, value))
    assert stored[0] == bytes.fromhex("0001 0001 67 0001 74 00000002".replace(" ", ""))
    assert stored[1] == bytes.fromhex("0003 0000000000000007 00000003 0001 6d 0000000000000009".replace(" ", ""))
    assert decode_record(*stored) == GroupRecord(key, value)


@pytest.mark.parametrize("group", ["g", "grüppe", "g" * 300])
@pytest.mark.parametrize(("partition", "offset", "epoch"), [(0, 0, -1), (2**31 - 1, 2**63 - 1, 2**31 - 1)])
def test_a_commit_without_metadata_is_written_as_any_other(group: str, partition: int, offset: int, epoch: int) -> None:
    key = OffsetCommitKey(group=group, topic="t", partition=partition)
    value = OffsetCommitValue(offset=offset, leader_epoch=epoch, metadata="", commit_timestamp=offset)
    declared = b"\0\1" + codec.encode(key, 0), b"\0\3" + codec.encode(value, 3)
    assert encode_record(GroupRecord(key, value)) == declared
    assert decode_record(*declared) == GroupRecord(key, value)


def test_a_commit_of_a_group_with_too_long_a_name_cannot_be_written() -> None:
    key = OffsetCommitKey(group="g" * 40_000, topic="t", partition=0)
    with pytest.raises(ValueError, match="more than 32767 bytes"):
        encode_record(GroupRecord(key, OffsetCommitValue(offset=1, metadata="", commit_timestamp=1)))


def test_a_group_is_written_in_version_3() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m",
        current_state_timestamp=5,
        members=[member],
    )
    key, stored = encode_record(GroupRecord(GroupMetadataKey(group="g"), value))
    assert key == b"\x00\x02\x00\x01g"
    assert stored is not None
    assert stored[:2] == b"\x00\x03"
    assert decode_record(key, stored) == GroupRecord(GroupMetadataKey(group="g"), value)
    assert decode_record(key, None) == GroupRecord(GroupMetadataKey(group="g"), None)


def test_every_key_has_a_value() -> None:
    assert set(KEYS) == set(VALUES) == {0, 1, 2, 3, 4, 5, 6, 7, 8, 16}


def test_what_is_not_understood_is_passed_over() -> None:
    assert decode_record(None, b"x") is None
    assert decode_record(b"\x00\x0b\x00\x01g", b"\x00\x00") is None
    assert decode_record(b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x63") is None
    with pytest.raises(MalformedMessage):
        decode_record(b"\x00\x01\x00\x09g", b"\x00\x03")


@pytest.mark.parametrize(
    ("name", "value"), [("", 0), ("a", 97), ("hello", 99162322), ("Hello World", -862545276), ("😀", 1772899)]
)
def test_names_hash_as_in_java(name: str, value: int) -> None:
    assert java_hash(name) == value


def test_the_least_number_goes_to_the_first_partition() -> None:
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("a", 50) == 47


def test_a_value_that_is_not_whole_says_so_however_often_its_key_was_read() -> None:
    key, value = encode_record(
        GroupRecord(
            OffsetCommitKey(group="g", topic="t", partition=1),
            OffsetCommitValue(offset=1, leader_epoch=2, metadata="note", commit_timestamp=3),
        )
    )
    assert value is not None
    for _ in range(2):
        found = decode_record(key, value)
        assert found is not None
        assert encode_record(found) == (key, value)
        for broken in (value[:-1], value + b"x", value[:17] + b"\xff" + value[18:], value[:1], b""):
            with pytest.raises(MalformedMessage):
                decode_record(key, broken)
        with pytest.raises(MalformedMessage):
            decode_record(key[:-1], value)
    assert decode_record(key, b"\x7f\xff" + value[2:]) is None, "a later version is passed over"


def test_every_declared_key_and_value_is_understood() -> None:
    """The unions of keys and values are listed by hand: every declaration must be in them."""
    declared = {
        kind
        for module in (consumer_offsets, consumer_groups)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, StoredKey) and kind not in (StoredKey, StoredValue)
    }
    assert {*KEYS.values(), *VALUES.values()} == declared
    assert KEYS.keys() == VALUES.keys()
    assert not any(issubclass(kind, StoredValue) for kind in KEYS.values())


def test_a_value_of_another_kind_is_our_mistake() -> None:
    value = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=())
    with pytest.raises(AssertionError, match="is no OffsetCommitValue"):
        value_as(OffsetCommitValue, value)
