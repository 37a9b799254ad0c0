"""Schemas in DDL mean here what they mean to Spark, though they are read without it."""

import pytest

from harness.answerer import Answerer
from penstock.spark.running.sample import SCHEMA
from penstock.spark.schemas.ddl import fields_of

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]
SCHEMAS = (
    SCHEMA,
    "a string, B Boolean, `c d` TINYINT, `e``f` SMALLINT, f INT NOT NULL, g BIGINT COMMENT 'it\\'s', h FLOAT, i DOUBLE",
    "a byte, b short, c integer, d long, e real, f dec, g numeric(5), h decimal(38, 18)",
    "a DATE, b TIMESTAMP, c TIMESTAMP_NTZ, d timestamp_ltz",
    'tags ARRAY<STRING>, deep ARRAY<ARRAY<STRUCT<x: INT, y DOUBLE NOT NULL COMMENT "y">>>, s struct<a:int,b:string>',
    "2nd INT, _x INT, date DATE, array ARRAY<INT>",
    "a: INT, b: STRING",
)


@pytest.mark.parametrize("ddl", SCHEMAS)
def test_a_schema_is_read_as_spark_reads_it(spark: Answerer, ddl: str) -> None:
    found = fields_of(ddl)
    assert found is not None
    assert spark.ask("fields", ddl=ddl)["fields"] == {each.name: str(each.type) for each in found}
