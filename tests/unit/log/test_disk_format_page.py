"""docs/disk-format.md matches the code: its tables are compared with structs, fields and constants."""

import inspect
import re
from pathlib import Path
from struct import Struct

import pytest
from crc32c import crc32c

from penstock.log import boot, checked, directory, index, ledger, log, manifest
from penstock.log.producers import BATCHES_REMEMBERED, SeenBatch
from penstock.log.segment import Segment
from penstock.log.settings import SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, LogSettings
from penstock.records.compression import Codec
from penstock.records.header import (
    CONTROL_BIT,
    CRC_COVERS_FROM,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchView,
)
from tests.simulation.log.histories import drive
from tests.unit.log.place import Place, from_producer

PAGE = (Path(__file__).parents[3] / "docs" / "disk-format.md").read_text()
LETTERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint32": "I"}


def section(heading: str) -> str:
    """Returns the text below a heading, up to the next heading."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no heading {heading!r}"
    return found[1]


def tables(heading: str) -> list[list[list[str]]]:
    """Returns the tables below a heading, as rows of cells without the header row."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", section(heading), re.MULTILINE):
        rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in block.splitlines()]
        found.append(rows[2:])
    return found


def names(heading: str, table: int = 0) -> list[str]:
    """Returns the first column of a table."""
    return [row[0] for row in tables(heading)[table]]


STRUCTS = {
    "Batch header": (HEADER.format, list(BatchView.__annotations__)),
    "Index entry": (index.ENTRY.format, [*index.Entry._fields]),
    "Aborted transaction": (index.ABORTED.format, [*index.AbortedTransaction._fields]),
    "Index footer": (index.FOOTER.format, ["entries", "aborted", "magic", "crc"]),
    "Ledger entry": (
        ledger._ENTRY.format + ledger._CRC.format.removeprefix(">"),
        ["turn", *ledger.LedgerEntry._fields, "crc"],
    ),
}


@pytest.mark.parametrize("heading", STRUCTS)
def test_a_layout_is_that_of_its_struct(heading: str) -> None:
    layout, fields = STRUCTS[heading]
    (table,) = tables(heading)
    assert ">" + "".join(LETTERS[row[2]] for row in table) == layout
    assert [row[3] for row in table] == fields
    position = 0
    for at, size_bytes, kind, *_ in table:
        assert (int(at), int(size_bytes)) == (position, Struct(">" + LETTERS[kind]).size)
        position += int(size_bytes)
    assert position == Struct(layout).size


def test_sizes_in_the_text() -> None:
    assert (HEADER.size, ledger.ENTRY_BYTES, index.ENTRY.size, index.ABORTED.size) == (61, 44, 16, 32)
    header = {row[3]: row for row in tables("Batch header")[0]}
    assert int(header["crc"][0]) == CRC_POSITION
    assert f"from position {CRC_COVERS_FROM} to the batch's end" in header["crc"][4]
    assert f"The CRC leaves out the first {CRC_COVERS_FROM} bytes" in PAGE
    assert header["magic"][4] == str(MAGIC)
    assert f"of the {ledger._ENTRY.size} bytes before" in section("Ledger entry")
    assert ledger.LEDGER_BYTES == 4 * 1024 * 1024
    assert "(4 MiB, or four times what all logs need)" in PAGE
    assert f"log number 0x{ledger._BEGIN:X}" in PAGE
    assert f"0x{index.MAGIC:X}" in section("Index footer")
    assert f"`index_interval_bytes` ({LogSettings().index_interval_bytes})" in " ".join(PAGE.split())
    assert SEGMENT_BYTES_MAX == SEGMENT_OFFSETS_MAX == 2**31 - 1
    assert f"up to {BATCHES_REMEMBERED} of its last batches" in PAGE


def test_bits_of_the_attributes() -> None:
    said = next(row[4] for row in tables("Batch header")[0] if row[3] == "attributes")
    for codec in Codec:
        assert f"{codec.value} {codec.name.lower()}" in said
    bits = {"log append time": LOG_APPEND_TIME_BIT, "transactional": TRANSACTIONAL_BIT, "control": CONTROL_BIT}
    for name, bit in (bits | {"delete horizon": DELETE_HORIZON_BIT}).items():
        assert f"{bit.bit_length() - 1} {name}" in said


def test_versions_are_those_of_the_headings() -> None:
    versions = dict(re.findall(r"^### (\w+) \(version (\d+)\)$", PAGE, re.MULTILINE))
    assert versions == {
        "directory": str(directory.FORMAT_VERSION),
        "boot": str(boot.VERSION),
        "clean": str(directory.FORMAT_VERSION),
        "manifest": str(log.MANIFEST_VERSION),
        "producers": str(log.SNAPSHOT_VERSION),
    }
    assert f"Every byte of a data directory, format {directory.FORMAT_VERSION}." in PAGE


def a_settled_place() -> Place:
    place = Place()
    for sequence in range(30):
        place.append(from_producer(5, sequence))
    place.commit()
    place.settle()
    return place


def test_fields_of_checked_files_are_those_that_are_written() -> None:
    place = a_settled_place()
    said = manifest.describe(place.log, place.log.settled_segments, is_clean=False)
    assert names("manifest (version 1)") == list(said)
    assert names("directory (version 1)") == list(place.directory.identity)
    assert names("boot (version 1)") == list(checked.read(place.disk, boot.BOOT, boot.BOOT, boot.VERSION).value)
    parameters = list(inspect.signature(Segment).parameters)
    assert names("manifest (version 1)", 1) == parameters
    assert Segment(*range(len(parameters))).to_list() == list(range(len(parameters)))
    (row, ended) = place.log.producers.snapshot().to_list()
    items = names("producers (version 1)")
    assert len(row) == len(items)
    known = place.log.producers.producers[5]
    assert row == [5, *(getattr(known, item) for item in items[1:-1]), [list(seen) for seen in known.seen]]
    assert ended == ["ended"]
    seen_fields = ", ".join(SeenBatch._fields)
    assert f"[{seen_fields}]" in section("producers (version 1)")


def test_the_marker_says_what_the_page_says() -> None:
    place = a_settled_place()
    drive(place.directory.close())
    said = checked.read(place.disk, "clean", "clean", directory.FORMAT_VERSION).value
    assert names("clean (version 1)") == list(said)
    assert said == {"logs": 1}


def test_a_checked_file_is_put_together_as_the_page_says() -> None:
    data = checked.encode("manifest", 1, {"a": [1, 2]})
    first, second = data[: len(data) // 2], data[len(data) // 2 :]
    assert first == second
    line, body, rest = first.split(b"\n")
    assert (body, rest) == (b'{"a":[1,2]}', b"")
    head, _, checksum = line.rpartition(b" ")
    assert head == b"penstock manifest 1 11"
    assert checksum == b"%08x" % crc32c(head + body)
    form = re.search(r"^penstock (.*)\\n$", section("Checked files"), re.MULTILINE)
    assert form is not None
    assert [word.strip("<>") for word in form[1].split()] == names("Checked files")[:-1]


def test_the_tree_has_every_file_that_there_is() -> None:
    """Each name on disk has a line on the page, and each line stands for a name on disk."""
    place = a_settled_place()
    drive(place.directory.close())
    place.disk.make_dir("logs/1.gone")
    place.disk.make_dir("logs/2.damaged")
    kinds = {"<base offset>": r"\d{20}", "<offset>": r"\d{20}", "<generation>": r"\d+", "<number>": r"\d+"}
    kinds |= {"<topic>": ".+", "<partition>": r"\d+"}
    shapes: dict[int, list[str]] = {0: [], 2: [], 4: []}
    for line in section("The tree").split("```")[1].removeprefix("text").strip("\n").splitlines():
        depth = len(line) - len(line.lstrip())
        for name in re.split(r"\s{3,}", line.strip())[0].split("  "):
            shape = re.escape(name.rstrip("/"))
            for kind, pattern in kinds.items():
                shape = shape.replace(re.escape(kind), pattern)
            shapes[depth].append(shape)
    for depth, path in ((0, ""), (2, "logs"), (4, place.log.path)):
        found = place.disk.list(path)
        assert all(any(re.fullmatch(shape, name) for shape in shapes[depth]) for name in found), found
        assert all(any(re.fullmatch(shape, name) for name in found) for shape in shapes[depth]), shapes[depth]
