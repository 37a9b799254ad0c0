"""Declaration of messages: one class per message, for all its versions.

Field order is wire order. A field without a marker is in every version; `since`, `until` and `tagged` limit its
versions and give the default for versions that lack it. Messages are values: slots, equality, no methods. Treat a
message as frozen once it is built: decoded messages share their defaults.
"""

import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, dataclass_transform

from penstock.model.errors import ErrorCode
from penstock.wire.types import BOOL, ERROR_CODE, Blob, Fixed, Text

FOREVER = 0x7FFF
"""The upper end of a range such as "3+"."""

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Range:
    """A range of versions, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Range":
        """Reads "3", "3+", "0-4" or "none"."""
        if text == "none":
            return cls(FOREVER, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), FOREVER)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> typing.Iterator[int]:
        return iter(range(self.first, self.last + 1))


ALL = Range(0, FOREVER)
NEVER = Range.parse("none")


@dataclass(frozen=True, slots=True)
class _Marker:
    """Placeholder that `since`, `until`, `tagged` and `field` leave in the class body until the class is built."""

    versions: Range
    default: object
    nullable: Range
    ignorable: bool
    tag: int | None = None
    flexible: bool = True


def since(
    version: int,
    *,
    default: Any,
    until: int = FOREVER,
    nullable_since: int = 0,
    ignorable: bool = False,
) -> Any:
    """A field added in `version` (and removed after `until`).

    A value other than the default cannot be written in a version that lacks the field, unless the field is `ignorable`.
    """
    return _Marker(Range(version, until), default, Range(nullable_since, FOREVER), ignorable)


def until(version: int, *, default: Any, nullable_since: int = 0, ignorable: bool = False) -> Any:
    """A field that existed from the start and was removed after `version`."""
    return since(0, default=default, until=version, nullable_since=nullable_since, ignorable=ignorable)


def tagged(tag: int, *, since: int, default: Any, ignorable: bool = False) -> Any:
    """An optional field after the others, written only if it differs from its default."""
    return _Marker(Range(since, FOREVER), default, ALL, ignorable, tag=tag)


def field(*, default: Any = _MISSING, nullable_since: int = 0, flexible: bool = True) -> Any:
    """A field of every version with options: nullable only from a version on, or never in compact form."""
    return _Marker(ALL, default, Range(nullable_since, FOREVER), ignorable=False, flexible=flexible)


@dataclass(frozen=True, slots=True)
class Array:
    """A repeated value."""

    item: "FieldType"


FieldType: typing.TypeAlias = "Fixed | Text | Blob | Array | type[Struct]"


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field."""

    name: str
    type: FieldType
    versions: Range
    nullable: Range
    default: Any
    is_required: bool
    ignorable: bool
    tag: int | None
    flexible: bool


def _field_type(annotation: Any) -> tuple[FieldType, bool]:
    """The wire type of an annotation, and whether it may be null."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        choices = [a for a in typing.get_args(annotation) if a is not types.NoneType]
        if len(choices) != 1:
            raise TypeError(f"{annotation} is not a type of the protocol")
        return _field_type(choices[0])[0], True
    if origin is Annotated:
        return typing.get_args(annotation)[1], False
    if origin is Sequence:
        return Array(_field_type(typing.get_args(annotation)[0])[0]), False
    if annotation is str:
        return Text(), False
    if annotation is bytes:
        return Blob(is_view=False), False
    if annotation is bool:
        return BOOL, False
    if annotation is ErrorCode:
        return ERROR_CODE, False
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation, False
    raise TypeError(f"{annotation} is not a type of the protocol")


def _declared(name: str, annotation: Any, given: Any) -> Field:
    kind, has_null = _field_type(annotation)
    marker = given if isinstance(given, _Marker) else _Marker(ALL, given, ALL, ignorable=False)
    return Field(
        name=name,
        type=kind,
        versions=marker.versions,
        nullable=marker.nullable if has_null else NEVER,
        default=marker.default,
        is_required=marker.default is _MISSING,
        ignorable=marker.ignorable,
        tag=marker.tag,
        flexible=marker.flexible,
    )


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] | None = namespace.get("__annotations__")
    if found is None and "__annotate_func__" in namespace:  # Python 3.14 evaluates annotations lazily
        found = namespace["__annotate_func__"](1)
    return found or {}


def _initializer(fields: tuple[Field, ...]) -> Callable[..., None]:
    """Compiles `__init__`: keywords only, sequences kept as tuples so that equal messages compare equal."""
    parameters = [f.name if f.is_required else f"{f.name}=_{f.name}" for f in fields]
    body = [
        f"  self.{f.name} = {f.name} if {f.name} is None else tuple({f.name})"
        if isinstance(f.type, Array)
        else f"  self.{f.name} = {f.name}"
        for f in fields
    ]
    head = f"def __init__(self, *, {', '.join(parameters)}):" if fields else "def __init__(self):"
    scope: dict[str, Any] = {f"_{f.name}": f.default for f in fields}
    exec("\n".join([head, *(body or ["  pass"])]), scope)  # noqa: S102 - the text is made of declared names only
    return typing.cast("Callable[..., None]", scope["__init__"])


class _StructType(type):
    """Builds a declared class: fields from annotations, slots, constructor."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> "_StructType":
        annotations = {n: a for n, a in _annotations(namespace).items() if typing.get_origin(a) is not ClassVar}
        fields = tuple(_declared(n, a, namespace.pop(n, _MISSING)) for n, a in annotations.items())
        namespace["__slots__"] = tuple(annotations)
        namespace["__init__"] = _initializer(fields)
        namespace["FIELDS"] = fields
        return super().__new__(mcs, name, bases, namespace, **options)


@dataclass_transform(eq_default=True, kw_only_default=True, field_specifiers=(since, until, tagged, field))
class Struct(metaclass=_StructType):
    """A group of fields inside a message."""

    FIELDS: ClassVar[tuple[Field, ...]]
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    def __repr__(self) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS)
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A group of fields with versions of its own."""

    VERSIONS: ClassVar[Range]
    """The versions that are declared."""
    FLEXIBLE: ClassVar[Range]
    """The versions with compact lengths and tagged fields (KIP-482)."""

    def __init_subclass__(cls, *, versions: str = "none", flexible: str = "none") -> None:
        super().__init_subclass__()
        cls.VERSIONS = Range.parse(versions)
        cls.FLEXIBLE = Range.parse(flexible)


class Request(Message):
    """A request. `unstable` names versions that are declared but not offered by a stock broker."""

    KEY: ClassVar[int]
    UNSTABLE: ClassVar[Range]

    def __init_subclass__(
        cls, *, key: int = -1, versions: str = "none", flexible: str = "none", unstable: str = "none"
    ) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.KEY = key
        cls.UNSTABLE = Range.parse(unstable)


class Response(Message):
    """A response."""

    KEY: ClassVar[int]

    def __init_subclass__(cls, *, key: int = -1, versions: str = "none", flexible: str = "none") -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.KEY = key


class StoredKey(Message):
    """The key of a record in an internal topic; the version on the wire is the record's type."""

    TYPE: ClassVar[int]

    def __init_subclass__(cls, *, type: int = -1, versions: str = "none", flexible: str = "none") -> None:  # noqa: A002
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.TYPE = type


class StoredValue(StoredKey):
    """The value of a record in an internal topic, of the type that its key names."""
