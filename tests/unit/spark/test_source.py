"""Discovery of the source by Spark, without loading heavy modules."""

import subprocess
import sys


def test_finding_the_source_loads_nothing_heavy() -> None:
    """Spark imports every module whose name begins with pyspark_, in every session, even if the source is not used."""
    program = (
        "import sys; from pyspark_penstock import DefaultSource; "
        "assert DefaultSource.name() == 'penstock'; "
        "print([name for name in ('pyarrow', 'numba', 'pandas', 'cryptography', 'deltalake') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_only_who_asks_for_pushdown_gets_a_reader_that_has_it() -> None:
    """A reader with pushFilters fails every batch while Spark's setting is off, and it is off by default."""
    from pyspark.sql.datasource import DataSourceReader

    from penstock.spark.source import BatchReader, PushdownReader

    assert BatchReader.pushFilters is DataSourceReader.pushFilters
    assert PushdownReader.pushFilters is not DataSourceReader.pushFilters
