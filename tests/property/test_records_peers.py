"""Our records against peers: each reads what the other wrote, record by record, for every codec they have."""

import datetime
import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules, Validation, check_batch
from penstock.records.compression import Codec
from penstock.records.header import BatchView
from penstock.records.rows import Record, rows

pytestmark = pytest.mark.peers

CAP_BYTES = 10 * 1024 * 1024
FULL = Rules(validation=Validation.FULL, timestamp_after_ms_max=None)

blobs = st.none() | st.binary(max_size=40) | st.integers(0, 9_000).map(bytes)
header_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
headers = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=20)), max_size=4).map(tuple)
# kio keeps only whole seconds.
timestamps_ms = st.integers(0, 2**32).map(lambda seconds: seconds * 1000)
entries = st.lists(st.tuples(timestamps_ms, blobs, blobs, headers), min_size=1, max_size=12)
Entries = list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]


def client(name: str) -> Any:
    """A module with DefaultRecordBatch and DefaultRecordBatchBuilder: one compiled, one plain."""
    return pytest.importorskip(f"{name}.record.default_records")


CLIENTS = [
    pytest.param(name, codec, id=f"{name}-{codec.name}")
    for name in ("aiokafka", "kafka")
    for codec in Codec
    # kafka-python's snappy is python-snappy, the library that we use ourselves.
    if (name, codec) != ("kafka", Codec.SNAPPY)
]


def as_records(records: Entries) -> list[Record]:
    return [Record(offset, *entry) for offset, entry in enumerate(records)]


def build_ours(codec: Codec, records: Entries) -> bytes:
    builder = BatchBuilder(codec=codec, producer_id=70, producer_epoch=3, base_sequence=9, is_transactional=True)
    for timestamp_ms, key, value, header_entries in records:
        builder.append(key, value, header_entries, timestamp_ms)
    return bytes(builder.build())


@pytest.mark.parametrize(("name", "codec"), CLIENTS)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=entries)
def test_clients_read_what_we_build(name: str, codec: Codec, records: Entries) -> None:
    theirs = client(name).DefaultRecordBatch(build_ours(codec, records))
    assert theirs.validate_crc()
    assert theirs.is_transactional
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (70, 3, 9)
    assert theirs.compression_type == codec
    read = [Record(row.offset, row.timestamp, row.key, row.value, tuple(row.headers)) for row in theirs]
    assert read == as_records(records)


@pytest.mark.parametrize(("name", "codec"), CLIENTS)
@settings(max_examples=50)
@given(records=entries)
def test_we_read_what_clients_build(name: str, codec: Codec, records: Entries) -> None:
    builder = client(name).DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=70,
        producer_epoch=3,
        base_sequence=9,
        batch_size=CAP_BYTES,
    )
    for offset, (timestamp_ms, key, value, header_entries) in enumerate(records):
        builder.append(offset, timestamp=timestamp_ms, key=key, value=value, headers=list(header_entries))
    batch = check_batch(bytes(builder.build()), FULL, 0)
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (70, 3, 9)
    assert list(rows(batch, CAP_BYTES)) == as_records(records)


@settings(max_examples=50)
@given(records=entries)
def test_without_compression_we_write_the_same_bytes_as_clients(records: Entries) -> None:
    """Two writers of the same records may differ only in the choices of compressors."""
    for name in ("aiokafka", "kafka"):
        builder = client(name).DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=True,
            producer_id=70,
            producer_epoch=3,
            base_sequence=9,
            batch_size=CAP_BYTES,
        )
        for offset, (timestamp_ms, key, value, header_entries) in enumerate(records):
            builder.append(offset, timestamp=timestamp_ms, key=key, value=value, headers=list(header_entries))
        # Bytes 12 to 16 are the leader epoch, which producers may set to any value.
        theirs, ours = bytes(builder.build()), build_ours(Codec.NONE, records)
        assert theirs[:12] + theirs[16:] == ours[:12] + ours[16:]


@settings(max_examples=50)
@given(records=entries)
def test_kio_reads_what_we_build(records: Entries) -> None:
    readers = pytest.importorskip("kio.records.readers")
    theirs, size_bytes = readers.read_batch(ours := build_ours(Codec.NONE, records), 0)
    assert size_bytes == len(ours)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (70, 3, 9)
    assert [
        Record(
            row.offset,
            round(row.timestamp.timestamp() * 1000),
            row.key,
            row.value,
            tuple((header.key.decode(), header.value) for header in row.headers),
        )
        for row in theirs.records
    ] == as_records(records)


@settings(max_examples=50)
@given(records=entries)
def test_we_read_what_kio_builds(records: Entries) -> None:
    schema = pytest.importorskip("kio.records.schema")
    writers = pytest.importorskip("kio.records.writers")
    out = io.BytesIO()
    writers.write_new_batch(
        out,
        schema.NewRecordBatch(
            producer_id=70,
            producer_epoch=3,
            base_sequence=9,
            attributes=0,
            records=tuple(
                schema.Record(
                    attributes=0,
                    timestamp=datetime.datetime.fromtimestamp(timestamp_ms // 1000, datetime.UTC),
                    offset=offset,
                    key=key,
                    value=value,
                    headers=tuple(
                        schema.RecordHeader(key=header_key.encode(), value=header_value)
                        for header_key, header_value in header_entries
                    ),
                )
                for offset, (timestamp_ms, key, value, header_entries) in enumerate(records)
            ),
        ),
    )
    assert list(rows(check_batch(out.getvalue(), FULL, 0), CAP_BYTES)) == as_records(records)


@pytest.mark.parametrize("name", ["aiokafka", "kafka"])
def test_clients_see_our_markers_as_control_batches(name: str) -> None:
    from penstock.records.control import ControlType, EndTransactionMarker, marker_batch

    buffer = marker_batch(EndTransactionMarker(ControlType.ABORT, 4), producer_id=70, producer_epoch=3, timestamp_ms=1)
    theirs = client(name).DefaultRecordBatch(bytes(buffer))
    assert theirs.is_control_batch
    assert theirs.validate_crc()
    assert [row.key for row in theirs] == [record.key for record in rows(BatchView(buffer), CAP_BYTES)]
