import pytest

from penstock.metadata.frames import decode_record, encode_record
from penstock.metadata.records import NoOpRecord, PartitionRecord, TopicRecord
from penstock.model.errors import MalformedMessage, UnsupportedVersion

TOPIC_ID = bytes(range(16))


def test_a_frame_names_its_version_the_kind_and_the_version_of_the_record() -> None:
    record = TopicRecord(name="orders", topic_id=TOPIC_ID)
    assert encode_record(record) == b"\x01\x02\x00" + b"\x07orders" + TOPIC_ID + b"\x00"
    assert decode_record(encode_record(record)) == record


def test_without_a_version_the_newest_is_written() -> None:
    record = PartitionRecord(topic_id=TOPIC_ID, replicas=(1,), isr=(1,), removing_replicas=(), adding_replicas=())
    assert encode_record(record)[:3] == b"\x01\x03\x02"
    assert encode_record(record, 0)[:3] == b"\x01\x03\x00"


@pytest.mark.parametrize("data", [b"\x00\x14\x00\x00", b"\x02\x14\x00\x00", b"\x01\x06\x00\x00", b"\x01\x14\x01\x00"])
def test_what_is_not_known_is_refused(data: bytes) -> None:
    """A node that skipped a record would have another image than the other nodes."""
    with pytest.raises(UnsupportedVersion):
        decode_record(data)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x14", b"\x01\x14\x00", encode_record(NoOpRecord()) + b"x"])
def test_what_is_cut_or_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(data)
