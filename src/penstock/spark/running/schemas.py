"""Schemas in Spark's DDL, such as `id BIGINT, amount DOUBLE`, as Arrow's. Needs a session."""

import pyarrow as pa

from penstock.spark.project.sections import ProjectError


def fields_of(ddl: str | None) -> pa.Schema | None:
    """The fields that are wanted of a document; ProjectError if they cannot be had from JSON."""
    if ddl is None:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        fields = to_arrow_schema(StructType.fromDDL(ddl), timezone="UTC")
    except (PySparkException, ValueError, TypeError) as error:
        first = str(error).strip().splitlines()[0]
        raise ProjectError(f"decode.schema {ddl!r} is not a list of names and types: {first}") from None
    for each in fields:
        _check(each.name, each.type)
    return pa.schema([pa.field(each.name, each.type) for each in fields])


def _check(path: str, kind: pa.DataType) -> None:
    if pa.types.is_struct(kind):
        for each in kind:
            _check(f"{path}.{each.name}", each.type)
    elif pa.types.is_list(kind):
        _check(f"{path}[]", kind.value_type)
    elif not (pa.types.is_primitive(kind) or pa.types.is_string(kind) or pa.types.is_decimal(kind)):
        raise ProjectError(
            f"decode.schema: {path} cannot be read from JSON as {kind}; use STRING, BOOLEAN, a number, DECIMAL, DATE, "
            "TIMESTAMP, ARRAY or STRUCT."
        )
