"""The codec: encoding of declarations, and safety against any input."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock.model.errors import ErrorCode, MalformedMessage, UnsupportedVersion
from penstock.wire import codec
from penstock.wire.declare import Array, Field, FieldType, Message, Request, Struct, field, since, tagged, until
from penstock.wire.types import ZERO_UUID, Blob, Fixed, Float64, Int8, Int16, Int32, Int64, Records, Text, UInt16, Uuid
from tests.apart import apart
from tests.declared import declared_messages


class Leaf(Struct):
    id: Int32
    note: str | None = since(1, default=None, ignorable=True)


class Branch(Struct):
    """Has a default for each field, so that it can be a tagged field's default."""

    weight: Int64 = -1
    name: str = ""


class Tree(Message, versions="0-3", flexible="2+"):
    name: str
    height: Int16 = since(1, default=-1)
    species: str = until(1, default="")
    owner: str | None = field(nullable_since=1)
    leaves: Sequence[Leaf] | None = field(nullable_since=2)
    trunk: Branch | None = since(3, default=None)
    age: Int32 = tagged(0, since=2, default=0)
    graft: Branch = tagged(5, since=2, default=Branch())
    nest: Branch | None = tagged(9, since=3, default=None)
    swing: Branch | None = tagged(11, since=3, default=Branch())
    error_code: ErrorCode = ErrorCode.NONE


class Everything(Message, versions="0-1", flexible="1+"):
    flag: bool
    tiny: Int8
    small: Int16
    port: UInt16
    middle: Int32
    large: Int64
    real: Float64
    identity: Uuid
    text: str
    blob: bytes
    batches: Records | None
    numbers: Sequence[Int32]
    texts: Sequence[str]
    identities: Sequence[Uuid]
    leaves: Sequence[Leaf]


def everything() -> Everything:
    return Everything(
        flag=True,
        tiny=-1,
        small=-2,
        port=65535,
        middle=-3,
        large=-4,
        real=0.5,
        identity=bytes(range(16)),
        text="ß",
        blob=b"\x00\xff",
        batches=b"batch",
        numbers=(1, 2),
        texts=("a", ""),
        identities=(ZERO_UUID, bytes(range(16))),
        leaves=(Leaf(id=7), Leaf(id=8)),
    )


def every_version(kind: type[Message] = Message) -> Iterator[tuple[type[Message], int]]:
    return (
        (message, version)
        for message in declared_messages().values()
        if issubclass(message, kind)
        for version in message.VERSIONS
    )


# --- encoding of declarations -----------------------------------------------------------------------------------------


def test_a_classic_version_has_fixed_lengths_and_no_tags() -> None:
    tree = Tree(name="oak", species="q", owner=None, height=3, leaves=[Leaf(id=1, note="n")])
    expected = b"\0\3oak\0\3\0\1q\xff\xff\0\0\0\1\0\0\0\1\0\1n\0\0"
    assert codec.encode(tree, 1) == expected
    assert codec.decode(Tree, 1, expected) == tree


def test_a_flexible_version_has_compact_lengths_and_tags_by_their_number() -> None:
    tree = Tree(name="oak", owner="me", height=3, leaves=None, graft=Branch(weight=1), age=300)
    tags = b"\2\0\4\0\0\1\x2c\5\x0a\0\0\0\0\0\0\0\1\1\0"
    expected = b"\4oak\0\3\3me\0\0\0" + tags
    assert codec.encode(tree, 2) == expected
    assert codec.decode(Tree, 2, expected) == tree


def test_a_nullable_struct_is_marked_by_a_byte_and_behind_a_tag_by_a_varint() -> None:
    """Kafka writes -1 or 1 in front of a nullable struct, but 0 or 1 where the struct is a tagged field."""
    start = b"\1\0\0\1\1"
    assert codec.encode(Tree(name="", height=0, owner="", leaves=()), 3) == start + b"\xff\0\0\0"
    full = Tree(name="", height=0, owner="", leaves=(), trunk=Branch(weight=2), nest=Branch(weight=3))
    trunk = b"\1\0\0\0\0\0\0\0\2\1\0"
    nest = b"\1\0\0\0\0\0\0\0\3\1\0"
    expected = start + trunk + b"\0\0\1\x09\x0b" + nest
    assert codec.encode(full, 3) == expected
    assert codec.decode(Tree, 3, expected) == full
    assert codec.decode(Tree, 3, start + b"\xff\0\0\1\x09\1\0").nest is None
    without_swing = start + b"\xff\0\0\1\x0b\1\0"
    assert codec.encode(Tree(name="", height=0, owner="", leaves=(), swing=None), 3) == without_swing
    assert codec.decode(Tree, 3, without_swing).swing is None


def test_a_field_that_a_version_lacks_reads_as_its_default() -> None:
    tree = codec.decode(Tree, 0, codec.encode(Tree(name="oak", species="q", owner="", leaves=[Leaf(id=1)]), 0))
    assert (tree.height, tree.trunk, tree.age, tree.graft, tree.nest) == (-1, None, 0, Branch(), None)
    assert tree.leaves == (Leaf(id=1, note=None),)


def test_what_a_version_cannot_carry_is_refused_unless_it_is_ignorable() -> None:
    lossless: dict[str, Any] = {"name": "", "owner": "", "leaves": ()}
    with pytest.raises(UnsupportedVersion, match="Tree v0 cannot carry height"):
        codec.encode(Tree(**lossless, height=1), 0)
    with pytest.raises(UnsupportedVersion, match="Tree v2 cannot carry species"):
        codec.encode(Tree(**lossless, species="q"), 2)
    with pytest.raises(UnsupportedVersion, match="Tree v1 cannot carry graft"):
        codec.encode(Tree(**lossless, graft=Branch(name="g")), 1)
    with_note = Tree(**{**lossless, "leaves": [Leaf(id=1, note="lost")]})
    assert codec.encode(with_note, 0) == codec.encode(Tree(**{**lossless, "leaves": [Leaf(id=1)]}), 0)


@pytest.mark.parametrize(("name", "version"), [("owner", 0), ("leaves", 1)])
def test_null_is_refused_before_it_was_allowed(name: str, version: int) -> None:
    values: dict[str, Any] = {"name": "", "owner": "", "leaves": (), name: None}
    with pytest.raises(ValueError, match="cannot be written"):
        codec.encode(Tree(**values), version)
    start = b"\0\0" if version == 0 else b"\0\0\0\0"
    null = b"\0\0\xff\xff" if name == "owner" else b"\0\0\0\0\xff\xff\xff\xff"
    with pytest.raises(MalformedMessage, match=f"{name}: null is not allowed here"):
        codec.decode(Tree, version, start + null + bytes(8))


def test_unknown_tags_are_skipped_and_their_sizes_checked() -> None:
    plain = codec.encode(Tree(name="", height=0, owner="", leaves=()), 2)
    assert plain[-1:] == b"\0"
    tree = codec.decode(Tree, 2, plain[:-1] + b"\3\0\4\0\0\0\7\x08\2ab\xff\xff\xff\xff\x07\0")
    assert tree.age == 7
    with pytest.raises(MalformedMessage):
        codec.decode(Tree, 2, plain[:-1] + b"\1\x08\3ab")
    with pytest.raises(MalformedMessage, match="does not fill its announced size"):
        codec.decode(Tree, 2, plain[:-1] + b"\1\0\5\0\0\0\7\0")


def test_every_type_survives_in_both_forms() -> None:
    for version in Everything.VERSIONS:
        assert codec.decode(Everything, version, codec.encode(everything(), version)) == everything()


def test_unknown_error_codes_keep_their_number() -> None:
    for code in (-32768, -2, 12345, 32767):
        data = codec.encode(Tree(name="", species="", owner="", leaves=(), error_code=ErrorCode(code)), 0)
        read = codec.decode(Tree, 0, data).error_code
        assert (read, read.name, read.is_retriable) == (code, f"CODE_{code}", False)
        assert codec.encode(codec.decode(Tree, 0, data), 0) == data


def test_records_stay_a_view_of_the_frame() -> None:
    frame = memoryview(bytes(codec.encode(everything(), 1)))
    batches = codec.decode(Everything, 1, frame).batches
    assert isinstance(batches, memoryview)
    assert batches.obj is frame.obj


def test_a_value_that_does_not_fit_is_the_writers_mistake() -> None:
    for name, wrong in {"tiny": 128, "port": -1, "text": "x" * 32768, "identity": None, "numbers": (1 << 31,)}.items():
        message = everything()
        setattr(message, name, wrong)
        for version in Everything.VERSIONS:
            with pytest.raises(ValueError, match="cannot be written"):
                codec.encode(message, version)


# --- hostile input ----------------------------------------------------------------------------------------------------


def test_a_message_cut_anywhere_is_malformed() -> None:
    """Every message at every version, cut after every byte, raises the same error and never decodes."""
    cuts = 0
    for message, version in every_version():
        whole = bytes(codec.encode(full(message, version), version))
        assert codec.decode(message, version, whole) == full(message, version)
        for end in range(len(whole)):
            with pytest.raises(MalformedMessage):
                codec.read_from(message, version, whole[:end])
        with pytest.raises(MalformedMessage, match="followed by 1 bytes"):
            codec.decode(message, version, whole + b"\0")
        cuts += len(whole)
    assert cuts > 50_000


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(
    ("version", "place", "width"),
    [
        (version, name, width)
        for version in (0, 1)
        for name, width in {
            "text": 2,
            "blob": 4,
            "batches": 4,
            "numbers": 4,
            "texts": 4,
            "identities": 4,
            "leaves": 4,
        }.items()
    ],
)
def test_lengths_beyond_the_input_allocate_nothing(
    wrap: Callable[[bytes], Any], version: int, place: str, width: int
) -> None:
    whole = bytes(codec.encode(everything(), version))
    start = _position_of(place, version)
    longest = b"\xff\xff\xff\xff\x0f" if version else b"\x7f\xff\xff\xff"[-4:] if width == 4 else b"\x7f\xff"
    data = whole[:start] + longest + whole[start + (1 if version else width) :]
    assert apart(refused_at_peak, wrap, data, version) < 64 * 1024


def refused_at_peak(wrap: Callable[[bytes], Any], data: bytes, version: int) -> int:
    """Returns the peak memory in bytes while a malformed message is decoded."""
    wrapped = wrap(data)
    codec.reader_for(Everything, version)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage):
            codec.decode(Everything, version, wrapped)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _position_of(place: str, version: int) -> int:
    """Returns the position of a field's length: there the encodings with and without its value diverge."""
    other = everything()
    setattr(other, place, type(getattr(other, place))())
    one, two = codec.encode(everything(), version), codec.encode(other, version)
    differing = next(i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return differing if version else differing - (1 if place == "text" else 3)


SCREENED_BYTES = 2 * 1024
HOSTILE_BYTES = 1024 * 1024
AMPLIFICATION_MAX = 64
"""Memory that a request may take while it is decoded, in multiples of its own size."""


def test_no_request_takes_much_more_memory_than_bytes() -> None:
    """Arrays are filled with the cheapest elements that make the decoder allocate; the worst are tried at full size."""
    screened, in_full = apart(worst_amplifications)
    assert screened <= AMPLIFICATION_MAX
    for times, where in in_full:
        assert times <= AMPLIFICATION_MAX, f"{times:.1f} times: {where}"


def worst_amplifications() -> tuple[float, list[tuple[float, str]]]:
    """Returns the worst of all short requests, and the three worst kinds at full size, each with its name."""
    worst: dict[type[Message], tuple[float, int, str, tuple[Field, ...]]] = {}
    for message, version in every_version(Request):
        for style in STYLES:
            for path in _arrays(message, version, ()):
                hostile = _with_long_array(message, version, style, path, SCREENED_BYTES)
                row = (amplification(hostile, version), version, style, path)
                worst[message] = max(worst.get(message, row), row, key=lambda r: r[0])
    ranking = sorted(worst.items(), key=lambda item: -item[1][0])
    in_full = []
    for message, (_, version, style, path) in ranking[:3]:
        times = amplification(_with_long_array(message, version, style, path, HOSTILE_BYTES), version)
        in_full.append((times, f"{message.__name__} v{version} {style} {'.'.join(f.name for f in path)}"))
    return ranking[0][1][0], in_full


def amplification(message: Message, version: int) -> float:
    """Returns the peak memory while the message is decoded, divided by its length on the wire."""
    data = memoryview(bytes(codec.encode(message, version)))
    codec.reader_for(type(message), version)
    gc.disable()  # there is no garbage here, and collection would take most of the time
    tracemalloc.start()
    try:
        kept = codec.decode(type(message), version, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert kept is not None
    return peak / len(data)


STYLES = ("null", "empty", "one")
"""Content of the elements: nulls where allowed, empty values, or one odd character, byte or element each."""


def _arrays(struct: type[Struct], version: int, path: tuple[Field, ...]) -> Iterator[tuple[Field, ...]]:
    """Yields the paths to the arrays of a message."""
    for f in struct.FIELDS:
        if version not in f.versions:
            continue
        if isinstance(f.type, Array):
            yield (*path, f)
        inner = f.type.item if isinstance(f.type, Array) else f.type
        if isinstance(inner, type):
            yield from _arrays(inner, version, (*path, f))


def _with_long_array(message: type[Message], version: int, style: str, path: tuple[Field, ...], size_bytes: int) -> Any:
    """Builds a message whose array at `path` fills `size_bytes`, with minimal other fields."""

    def made(struct: type[Struct], rest: tuple[Field, ...], count: int) -> Any:
        values = {f.name: least(f, version, style) for f in struct.FIELDS if version in f.versions}
        step = rest[0]
        inner = step.type.item if isinstance(step.type, Array) else step.type
        if len(rest) > 1:
            assert isinstance(inner, type)
            value = made(inner, rest[1:], count)
            values[step.name] = (value,) if isinstance(step.type, Array) else value
        else:
            values[step.name] = (least_item(step, inner, version, style),) * count
        return struct(**values)

    one, many = (len(codec.encode(made(message, path, n), version)) for n in (1, 101))
    per_element = (many - one) / 100
    return made(message, path, max(1, int((size_bytes - one) / per_element)))


def least(f: Field, version: int, style: str) -> Any:
    """Returns the cheapest value of a field in the given style."""
    if style == "null" and version in f.nullable:
        return None
    if isinstance(f.type, Array):
        return (least_item(f, f.type.item, version, style),) if style == "one" else ()
    return least_item(f, f.type, version, style)


def least_item(f: Field, kind: FieldType, version: int, style: str) -> Any:
    match kind:
        case Fixed():
            return {"float64": 0.0, "uuid": ZERO_UUID, "bool": False, "error_code": ErrorCode.NONE}.get(kind.name, 0)
        case Text():
            return "Ā" if style == "one" else ""  # outside Latin-1, so that the interpreter has no cached copy
        case Blob():
            return b"x" if style == "one" else b""
        case Array():
            raise TypeError(f"{f.name}: arrays of arrays do not exist")
    return kind(**{x.name: least(x, version, style) for x in kind.FIELDS if version in x.versions})


def full(message: type[Message], version: int) -> Message:
    """Builds a message with a non-default value in every field of the version."""
    made = _full_struct(message, version)
    assert isinstance(made, Message)
    return made


def _full_struct(struct: type[Struct], version: int) -> Struct:
    return struct(**{f.name: _full_value(f.type, version) for f in struct.FIELDS if version in f.versions})


def _full_value(kind: FieldType, version: int) -> Any:
    match kind:
        case Fixed():
            odd = {"float64": 2.5, "uuid": bytes(range(16)), "bool": True, "error_code": ErrorCode.NOT_COORDINATOR}
            return odd.get(kind.name, 77)
        case Text():
            return "tëxt"
        case Blob():
            return b"bytes"
        case Array():
            return (_full_value(kind.item, version),) * 2
    return _full_struct(kind, version)
