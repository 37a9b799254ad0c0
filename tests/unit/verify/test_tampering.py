"""No missed anomalies: each is found wherever it is planted in an otherwise clean history."""

from functools import cache
from random import Random

import pytest

from penstock.verify.check import check
from penstock.verify.findings import NOTED_KINDS, Kind
from penstock.verify.history import Event
from penstock.verify.rules import Rules
from tests.unit.verify.generated import clean_history, clean_pipeline
from tests.unit.verify.tampering import MUTATIONS, PIPELINE_MUTATIONS, History, Impossible, Mutation

PLACES = 20


@cache
def history_of(seed: int, is_pipeline: bool) -> tuple[list[Event], Rules]:
    return clean_pipeline(seed) if is_pipeline else clean_history(seed)


@pytest.mark.parametrize("mutation", MUTATIONS + PIPELINE_MUTATIONS, ids=lambda mutation: mutation.plant.__name__)
def test_a_trouble_is_found_wherever_it_is_planted(mutation: Mutation) -> None:
    planted = 0
    for attempt in range(20 * PLACES):
        clean, rules = history_of(attempt % PLACES, mutation in PIPELINE_MUTATIONS)
        history = History(clean, Random(attempt))
        try:
            mutation.plant(history)
        except Impossible:
            continue
        report = check(history.events, rules)
        found = set(report.anomalies) | set(report.notes)
        assert mutation.kind in found, report.text()
        assert found <= {mutation.kind} | mutation.besides, report.text()
        planted += 1
        if planted == PLACES:
            return
    pytest.fail(f"only {planted} places found")


def test_every_kind_is_planted() -> None:
    planted = {mutation.kind for mutation in MUTATIONS + PIPELINE_MUTATIONS}
    assert planted == set(Kind) - NOTED_KINDS - {Kind.REPLICA_DIVERGENCE}
