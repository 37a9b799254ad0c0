"""The two decoders of columns are twins: they accept the same bytes and make the same tables of them.

Machine code checks no bounds, so the same kernels also run here as plain Python, on arrays that check every index.
"""

import random
from functools import partial

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.header import BatchView, TimestampType
from penstock.spark.columns import RecordRange, UnreadableBatch
from penstock.spark.columns.compiled import CompiledColumns
from penstock.spark.columns.decoding import Columns, MakeColumns, stream
from penstock.spark.columns.loading import Kernels, load
from penstock.spark.columns.plain import PlainColumns
from penstock.spark.columns.shape import arrow_schema
from tests.unit.spark.columns.guarded import GUARDED
from tests.unit.spark.columns.mutation import mutate, random_batch

BYTES_MAX = 1024 * 1024

blobs = st.none() | st.binary(max_size=80) | st.integers(60, 9_000).map(bytes)
header_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.binary(max_size=6).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)
headers = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=70)), max_size=4).map(tuple)
timestamps_ms = st.integers(-(2**45), 2**45) | st.sampled_from([-1, 0, 2**53, 2**54, -(2**54), 2**62])
gaps = st.sampled_from([1, 1, 1, 2, 63, 64, 8_192, 2**20])
entries = st.tuples(blobs, blobs, st.just(()) | headers, timestamps_ms, gaps)
wanted_ranges = st.tuples(st.integers(-1, 40), st.integers(0, 2**22) | st.just(2**62))


@st.composite
def built_batches(draw: st.DrawFn) -> bytes:
    """Consecutive batches: any codec, nulls, headers, gaps, both timestamp types, some of them empty."""
    data = bytearray()
    base_offset = draw(st.sampled_from([0, 10, 2**40]))
    for _ in range(draw(st.integers(1, 4))):
        builder = BatchBuilder(
            codec=draw(st.sampled_from(Codec)),
            base_offset=base_offset,
            timestamp_type=draw(st.sampled_from(TimestampType)),
        )
        delta = 0
        for key, value, header_entries, timestamp_ms, gap in draw(st.lists(entries, max_size=9)):
            builder.append(key, value, header_entries, timestamp_ms, delta)
            delta += gap
        data += builder.build(last_offset_delta=delta)
        base_offset += delta + 1
    return bytes(data)


def compiled() -> Kernels:
    kernels = load()
    assert kernels is not None
    return kernels


def outcome(make_columns: MakeColumns, data: bytes, wanted: RecordRange) -> pa.Table | str:
    """The table, or the error message."""
    try:
        tables = list(stream(data, wanted, make_columns=make_columns, bytes_max=BYTES_MAX))
    except UnreadableBatch as trouble:
        return str(trouble)
    table = pa.Table.from_batches(tables, arrow_schema(wanted.has_headers))
    table.validate(full=True)
    return table


@settings(max_examples=300)
@given(built_batches(), wanted_ranges, st.booleans())
def test_both_make_the_same_table(data: bytes, bounds: tuple[int, int], has_headers: bool) -> None:
    wanted = RecordRange("orders", 3, *bounds, has_headers)
    expected = outcome(PlainColumns, data, wanted)
    for kernels in (compiled(), GUARDED):
        assert outcome(partial(CompiledColumns, kernels), data, wanted) == expected


@settings(max_examples=300)
@given(built_batches(), st.data())
def test_both_say_the_same_of_damaged_bytes(data: bytes, draws: st.DataObject) -> None:
    """The checksum is not corrected here: it reveals most damage, the rest lies outside of its range."""
    damaged = bytearray(data)
    for _ in range(draws.draw(st.integers(1, 3))):
        place = draws.draw(st.integers(0, len(damaged) - 1))
        damaged[place] ^= draws.draw(st.integers(1, 255))
    wanted = RecordRange("orders", 3, 0, 2**62, draws.draw(st.booleans()))
    expected = outcome(PlainColumns, bytes(damaged), wanted)
    for kernels in (compiled(), GUARDED):
        assert outcome(partial(CompiledColumns, kernels), bytes(damaged), wanted) == expected


def added(columns: Columns, batch: BatchView) -> Columns | str:
    """The columns with the batch, or the error message."""
    try:
        columns.add(batch)
    except UnreadableBatch as trouble:
        return str(trouble)
    return columns


@settings(max_examples=1_500)
@given(st.integers(0, 2**63), st.booleans())
def test_kernels_refuse_what_the_plain_decoder_refuses_and_nothing_else(seed: int, has_headers: bool) -> None:
    """Damage with a matching checksum. Tests the kernels' own verdict, before the plain decoder takes over."""
    dice = random.Random(seed)
    batch = BatchView(bytes(mutate(dice, random_batch(dice, base_offset=100))))
    wanted = RecordRange("orders", 3, dice.choice((0, 101)), dice.choice((104, 2**62)), has_headers)
    expected = added(PlainColumns(wanted, BYTES_MAX), batch)
    for kernels in (compiled(), GUARDED):
        unpacked = added(CompiledColumns(kernels, wanted, BYTES_MAX), batch)
        if isinstance(unpacked, str):
            assert unpacked == expected
            continue
        assert isinstance(unpacked, CompiledColumns)
        found = unpacked.fill()
        if isinstance(expected, str):
            assert found is None
            continue
        table = expected.finish()
        if found is None:
            assert "\ufffd" in str(table.to_pydict()), "only keys that are not UTF-8 are left to the plain decoder"
        else:
            assert found.equals(table)
