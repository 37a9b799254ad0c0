"""Runs every test with both decoders."""

from functools import partial

import pytest

from penstock.spark.columns.compiled import CompiledColumns
from penstock.spark.columns.decoding import MakeColumns
from penstock.spark.columns.loading import load
from penstock.spark.columns.plain import PlainColumns


@pytest.fixture(params=["plain", "compiled"])
def make_columns(request: pytest.FixtureRequest) -> MakeColumns:
    if request.param == "plain":
        return PlainColumns
    kernels = load()
    assert kernels is not None, "the extra `spark` is not installed"
    return partial(CompiledColumns, kernels)
