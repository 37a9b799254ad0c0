"""Converts schemas in Spark's DDL, such as `id BIGINT, amount DOUBLE`, to Arrow's. Needs no session."""

import re
from collections.abc import Sequence

import pyarrow as pa

from penstock.spark.project.sections import ProjectError, nearest

ELEMENT = "element"
"""The name that Spark and Delta give to the elements of an array."""
SIMPLE = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
DECIMAL_DEFAULT = (10, 0)
DIGITS_MAX = 38
NESTED = ("ARRAY", "STRUCT")
NOT_IN_JSON = ("BINARY", "MAP", "VARCHAR", "CHAR", "CHARACTER", "INTERVAL", "VARIANT", "VOID", "TIME")
"""Types of Spark that are not read from JSON here."""
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))")
_NAME, _TEXT, _WORD, _SIGN = 1, 2, 3, 4


def fields_of(ddl: str | None) -> pa.Schema | None:
    """The wanted fields of a document; raises ProjectError if the schema is wrong, or cannot be read from JSON."""
    if ddl is None:
        return None
    try:
        return pa.schema(_Parser(ddl).whole())
    except _Wrong as error:
        raise ProjectError(f"decode.schema {ddl!r} is not a list of names and types: {error}") from None


class _Wrong(Exception):
    """An error in the text."""


class _Parser:
    """Reads one text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[int, str]] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None or found.lastindex is None:
                raise _Wrong(f"{text[position:].strip()[0]!r} must be in backquotes, as part of a name.")
            self._tokens.append((found.lastindex, found[found.lastindex]))
            position = found.end()
        self._next = 0

    def whole(self) -> list[pa.Field]:
        """All fields."""
        words = [text.upper() for _, text in self._tokens[:2]]
        if words == ["STRUCT", "<"]:
            kind = self._type("")
            self._check_end()
            return list(kind)
        fields = self._fields("", closing=None)
        self._check_end()
        return fields

    def _check_end(self) -> None:
        if (kind_and_text := self._peek()) is not None:
            raise _Wrong(f"{kind_and_text[1]} is not expected; fields are separated by commas.")

    def _fields(self, path: str, closing: str | None) -> list[pa.Field]:
        fields: list[pa.Field] = []
        while True:
            name = self._name(path)
            if name.lower() in (each.name.lower() for each in fields):
                raise _Wrong(f"it names {path}{name} twice.")
            self._take(":")
            fields.append(pa.field(name, self._type(f"{path}{name}")))
            self._skip_remarks()
            if not self._take(","):
                break
        if closing is not None and not self._take(closing):
            raise _Wrong(f"{path.rstrip('.')} lacks its {closing}.")
        return fields

    def _name(self, path: str) -> str:
        kind, text = self._word(f"a name is missing{f' in {path[:-1]}' if path else ''}.")
        return text[1:-1].replace("``", "`") if kind == _NAME else text

    def _type(self, path: str) -> pa.DataType:
        kind, text = self._word(f"{path} has no type.")
        word = text.upper()
        if kind == _WORD and word in SIMPLE:
            return SIMPLE[word]
        if word in DECIMALS:
            return self._decimal(path)
        if word in NESTED:
            if not self._take("<"):
                raise _Wrong(f"{path} is {word}<…>: say of what.")
            if word == "STRUCT":
                return pa.struct(self._fields(f"{path}." if path else "", closing=">"))
            element = self._type(f"{path}[]")
            if not self._take(">"):
                raise _Wrong(f"{path} lacks its >.")
            return pa.list_(pa.field(ELEMENT, element))
        if word in NOT_IN_JSON:
            raise _Wrong(
                f"{path} cannot be read from JSON as {word}; use STRING, BOOLEAN, a number, DECIMAL, DATE, TIMESTAMP, "
                "ARRAY or STRUCT."
            )
        raise _Wrong(f"{path} has the unknown type {text}: {nearest(word, (*SIMPLE, *DECIMALS, *NESTED))}")

    def _decimal(self, path: str) -> pa.DataType:
        if not self._take("("):
            return pa.decimal128(*DECIMAL_DEFAULT)
        numbers = [self._number(path)]
        if self._take(","):
            numbers.append(self._number(path))
        if not self._take(")"):
            raise _Wrong(f"{path} lacks its ).")
        precision, scale = numbers[0], numbers[1] if len(numbers) == 2 else 0
        if not 0 < precision <= DIGITS_MAX or scale > precision:
            raise _Wrong(f"{path}: a DECIMAL has 1 to {DIGITS_MAX} digits, and no more of them behind the point.")
        return pa.decimal128(precision, scale)

    def _number(self, path: str) -> int:
        _, text = self._word(f"{path} lacks its number of digits.")
        if not text.isdecimal():
            raise _Wrong(f"{path}: {text} is not a number of digits.")
        return int(text)

    def _skip_remarks(self) -> None:
        """Skips NOT NULL, which no record can promise, and COMMENT."""
        if self._takes_words("NOT", "NULL"):
            pass
        if self._takes_words("COMMENT"):
            kind_and_text = self._peek()
            if kind_and_text is None or kind_and_text[0] != _TEXT:
                raise _Wrong("COMMENT is followed by a text in quotes.")
            self._next += 1

    # --- tokens

    def _peek(self) -> tuple[int, str] | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _word(self, otherwise: str) -> tuple[int, str]:
        found = self._peek()
        if found is None or found[0] not in (_NAME, _WORD):
            raise _Wrong(otherwise)
        self._next += 1
        return found

    def _take(self, sign: str) -> bool:
        if self._peek() != (_SIGN, sign):
            return False
        self._next += 1
        return True

    def _takes_words(self, *words: str) -> bool:
        found = self._tokens[self._next : self._next + len(words)]
        if [text.upper() for _, text in found] != list(words):
            return False
        self._next += len(words)
        return True


def ddl_of(fields: Sequence[pa.Field]) -> str:
    """The DDL of fields, as `fields_of` reads it."""
    return ", ".join(f"{_quoted(each.name)} {type_text(each.type)}" for each in fields)


def type_text(kind: pa.DataType) -> str:
    """The DDL of a type that `fields_of` makes."""
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{_quoted(each.name)}: {type_text(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{type_text(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return next(word for word, each in SIMPLE.items() if each == kind)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else f"`{name.replace('`', '``')}`"
