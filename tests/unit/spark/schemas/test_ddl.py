"""Schemas in Spark's DDL are read without Spark; an error names the field and what would be right."""

import pyarrow as pa
import pytest

from penstock.spark.project.sections import ProjectError
from penstock.spark.schemas.ddl import ddl_of, fields_of


def test_every_type() -> None:
    found = fields_of(
        "a string, B Boolean, `c d` TINYINT, e SMALLINT, f INT NOT NULL, g BIGINT COMMENT 'it\\'s', h FLOAT, i DOUBLE, "
        "j DECIMAL(10, 2), k DEC, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ, o ARRAY<STRING>, "
        'p STRUCT<name: STRING, born DATE, deep: STRUCT<x: ARRAY<ARRAY<INT>>>> NOT NULL COMMENT "who"'
    )
    assert found is not None
    born = pa.struct(
        [
            ("name", pa.string()),
            ("born", pa.date32()),
            ("deep", pa.struct([("x", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int32())))))])),
        ]
    )
    assert found.types == [
        pa.string(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(10, 2),
        pa.decimal128(10, 0),
        pa.date32(),
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("us"),
        pa.list_(pa.field("element", pa.string())),
        born,
    ]
    assert found.names[:3] == ["a", "B", "c d"]
    assert fields_of(ddl_of(list(found))) == found
    assert fields_of("STRUCT<a: INT>") == fields_of("a INT")
    assert fields_of(None) is None


WRONG = {
    "order_id": "order_id has no type.",
    "order_id BIGNIT": "order_id has the unknown type BIGNIT: did you mean BIGINT?",
    "order_id BIGINT amount DOUBLE": "amount is not expected; fields are separated by commas.",
    "order_id BIGINT,": "a name is missing.",
    "order-id BIGINT": "'-' must be in backquotes, as part of a name.",
    "id INT, Id INT": "it names Id twice.",
    "who STRUCT<name STRING, age>": "who.age has no type.",
    "who STRUCT<name STRING": "who lacks its >.",
    "who STRUCT<>": "a name is missing in who.",
    "tags ARRAY": "tags is ARRAY<…>: say of what.",
    "tags ARRAY<BINARY>": "tags[] cannot be read from JSON as BINARY; use STRING",
    "m MAP<STRING, INT>": "m cannot be read from JSON as MAP",
    "price DECIMAL(39, 2)": "price: a DECIMAL has 1 to 38 digits",
    "price DECIMAL(2, 3)": "no more of them behind the point",
    "price DECIMAL(x)": "price: x is not a number of digits.",
    "price DECIMAL(10": "price lacks its ).",
    "a INT COMMENT": "COMMENT is followed by a text in quotes.",
}


@pytest.mark.parametrize("ddl", list(WRONG))
def test_errors(ddl: str) -> None:
    with pytest.raises(ProjectError) as caught:
        fields_of(ddl)
    assert str(caught.value).startswith(f"decode.schema {ddl!r} is not a list of names and types: ")
    assert WRONG[ddl] in str(caught.value)
