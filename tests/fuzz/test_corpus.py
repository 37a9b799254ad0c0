"""Replays the whole corpus through its target, without a fuzzer: regressions stay fixed."""

import random

import pytest

from tests.fuzz.run import CORPUS
from tests.fuzz.seeds import seeds_for
from tests.fuzz.targets import TARGETS

FILES_MAX = 250
BYTES_MAX = 400_000


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_breaks_no_rule(name: str) -> None:
    files = sorted((CORPUS / name).iterdir())
    assert files, "no corpus"
    for file in files:
        try:
            TARGETS[name](file.read_bytes())
            TARGETS[name].measure(file.read_bytes())
        except Exception as trouble:
            command = f"python tests/fuzz/run.py {name} --input {file.relative_to(CORPUS.parents[2])}"
            raise AssertionError(f"{type(trouble).__name__}: {trouble}; reproduce: {command}") from trouble


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_breaks_no_rule(name: str) -> None:
    for seed in seeds_for(name, random.Random(0)):
        TARGETS[name](seed)
        TARGETS[name].measure(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_stays_small(name: str) -> None:
    files = list((CORPUS / name).iterdir())
    assert len(files) <= FILES_MAX
    assert sum(file.stat().st_size for file in files) <= BYTES_MAX
