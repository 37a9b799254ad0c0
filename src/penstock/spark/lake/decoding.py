"""Bytes into values, by Spark's own functions, and what could not be read beside them.

What comes out has the table's columns and, if decoding can fail, `_bad` (see `rows`). A record without a value is a
tombstone and never bad.
"""

from typing import TYPE_CHECKING

from penstock.spark.lake.rows import BAD
from penstock.spark.project.plan import Decode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT = "_corrupt"


def decoded(frame: "DataFrame", decode: Decode) -> "DataFrame":
    """The source's columns, decoded as the file says."""
    if not decode.can_fail:
        return frame
    from pyspark.sql import functions as f

    key, key_wrong = _text("key") if decode.key == "text" else (f.col("key"), None)
    value, value_wrong = _value(decode)
    wrong = f.coalesce(*(each for each in (key_wrong, value_wrong) if each is not None))
    raw = f.struct(
        wrong["kind"].alias("kind"),
        wrong["reason"].alias("reason"),
        f.col("key").alias("key"),
        f.col("value").alias("value"),
    )
    others = [f.col(name) for name in frame.columns if name not in ("key", "value")]
    return frame.select(key.alias("key"), value.alias("value"), *others, f.when(wrong.isNotNull(), raw).alias(BAD))


def _value(decode: Decode) -> "tuple[Column, Column | None]":
    from pyspark.sql import functions as f

    match decode.value, decode.schema:
        case "text", _:
            return _text("value")
        case "json", None:
            text, not_text = _text("value")
            is_wrong = text.isNotNull() & f.try_parse_json(text).isNull()
            return f.when(~is_wrong, text), f.coalesce(not_text, _when(is_wrong, "NotJson", "the value is not JSON"))
        case "json", str(schema):
            return _structure(schema)
    return f.col("value"), None


def _structure(schema: str) -> "tuple[Column, Column | None]":
    """JSON as columns. Spark reads an empty text as nothing at all, so that must be told apart."""
    from pyspark.sql import functions as f

    text, not_text = _text("value")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = f.from_json(text, f"{schema}, {CORRUPT} STRING", options)
    is_wrong = text.isNotNull() & (parsed.isNull() | parsed[CORRUPT].isNotNull())
    reason = "the value is not JSON of the given schema"
    return f.when(~is_wrong, parsed.dropFields(CORRUPT)), f.coalesce(not_text, _when(is_wrong, "NotOfSchema", reason))


def _text(name: str) -> "tuple[Column, Column]":
    from pyspark.sql import functions as f

    text = f.col(name).cast("string")
    is_wrong = text.isNotNull() & ~f.is_valid_utf8(text)
    return f.when(~is_wrong, text), _when(is_wrong, "NotText", f"the {name} is not UTF-8")


def _when(condition: "Column", kind: str, reason: str) -> "Column":
    from pyspark.sql import functions as f

    return f.when(condition, f.struct(f.lit(kind).alias("kind"), f.lit(reason).alias("reason")))
