"""Batches written by kafka-clients 4.3.1 for Java: the same three records in every codec, and a transaction marker.

Stored as bytes, so that the test needs no Java. Level 22 of zstd declares a window of 128 MiB even for
these few bytes, because Java's writer does not know the size in advance.
"""

import pytest

from penstock.records.builder import BatchBuilder
from penstock.records.check import Rules, Validation, check_batch
from penstock.records.compression import Codec
from penstock.records.control import ControlType, EndTransactionMarker, marker_batch
from penstock.records.header import BatchView
from penstock.records.rows import Record, rows

NONE = bytes.fromhex(
    "00000000000000000000018f0000000902d7e9f9570010000000020000018bcfe568000000018bcfe569f400000000000000"
    "4d000300000005000000033a000000046b31047631041074726163652dc3a906616263086e6f6e6501e80400cf0f0201d804"
    + "00" * 300
    + "001200e80704046b330100"
)
GZIP = bytes.fromhex(
    "00000000000000000000007b00000009027ed55ed20011000000020000018bcfe568000000018bcfe569f400000000000000"
    "4d000300000005000000031f8b08000000000000ffb362606060c936642933641128294a4c4ed53dbc922d312999232f3f2f"
    "95f1050bc3797e26c61b2c0ca3807820c4f0829d8525db98910100945910f55e010000"
)
SNAPPY_XERIAL = bytes.fromhex(
    "00000000000000000000008b0000000902e95b35af0012000000020000018bcfe568000000018bcfe569f400000000000000"
    "4d0003000000050000000382534e4150505900000000010000000100000046de02a03a000000046b31047631041074726163"
    "652dc3a906616263086e6f6e6501e80400cf0f0201d8040000fe0200fe0200fe0200fe0200aa0200241200e80704046b3301"
    "00"
)
LZ4 = bytes.fromhex(
    "0000000000000000000000790000000902cb5b69680013000000020000018bcfe568000000018bcfe569f400000000000000"
    "4d0003000000050000000304224d1860408239000000ff193a000000046b31047631041074726163652dc3a906616263086e"
    "6f6e6501e80400cf0f0201d804000100ff1aa01200e80704046b33010000000000"
)
ZSTD = bytes.fromhex(
    "0000000000000000000000770000000902b10e201e0014000000020000018bcfe568000000018bcfe569f400000000000000"
    "4d0003000000050000000328b52ffd0058d4010024033a000000046b31047631041074726163652dc3a906616263086e6f6e"
    "6501e80400cf0f0201d804001200e80704046b330100010048514119010000"
)
ZSTD_LEVEL_22 = bytes.fromhex(
    "00000000000000000000007700000009023301b7090014000000020000018bcfe568000000018bcfe569f400000000000000"
    "4d0003000000050000000328b52ffd0088d4010024033a000000046b31047631041074726163652dc3a906616263086e6f6e"
    "6501e80400cf0f0201d804001200e80704046b330100010048514119010000"
)
COMMIT = bytes.fromhex(
    "00000000000000280000004200000009021c029d760030000000000000018bcfe568000000018bcfe5680000000000000000"
    "4d0003ffffffff000000012000000008000000010c00000000000c00"
)

RECORDS = [
    Record(0, 1_700_000_000_000, b"k1", b"v1", (("trace-é", b"abc"), ("none", None))),
    Record(1, 1_699_999_999_000, None, bytes(300)),
    Record(2, 1_700_000_000_500, b"k3", None),
]


@pytest.mark.parametrize(
    ("batch", "codec"),
    [
        (NONE, Codec.NONE),
        (GZIP, Codec.GZIP),
        (SNAPPY_XERIAL, Codec.SNAPPY),
        (LZ4, Codec.LZ4),
        (ZSTD, Codec.ZSTD),
        (ZSTD_LEVEL_22, Codec.ZSTD),
    ],
)
def test_we_read_what_java_writes(batch: bytes, codec: Codec) -> None:
    view = check_batch(batch, Rules(validation=Validation.FULL), now_ms=1_700_000_000_000)
    assert view.codec is codec
    assert (view.producer_id, view.producer_epoch, view.base_sequence, view.leader_epoch) == (77, 3, 5, 9)
    assert view.is_transactional
    assert list(rows(view, 1_000)) == RECORDS


def test_without_compression_we_write_the_bytes_that_java_writes() -> None:
    builder = BatchBuilder(leader_epoch=9, producer_id=77, producer_epoch=3, base_sequence=5, is_transactional=True)
    for record in RECORDS:
        builder.append(record.key, record.value, record.headers, record.timestamp_ms)
    assert builder.build() == NONE


def test_a_marker_of_ours_is_the_marker_of_java() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, coordinator_epoch=12)
    ours = marker_batch(
        marker, producer_id=77, producer_epoch=3, timestamp_ms=1_700_000_000_000, base_offset=40, leader_epoch=9
    )
    assert ours == COMMIT
    assert BatchView(COMMIT).is_intact
