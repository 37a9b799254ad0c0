"""Consume, transform, produce: every committed input leads to exactly one visible output."""

from collections.abc import Hashable, Iterator

from penstock.verify.findings import Finding, Kind
from penstock.verify.history import Partition, Value
from penstock.verify.index import Index
from penstock.verify.operations import Operation
from penstock.verify.rules import Pipeline, Rules


def find_pipeline_faults(index: Index, rules: Rules) -> Iterator[Finding]:
    """Inputs with no output or with several, and outputs of no input."""
    pipeline = rules.pipeline
    if pipeline is None:
        return
    outputs = _outputs(index, pipeline)
    for partition in sorted(pipeline.inputs & index.partitions.keys(), key=str):
        log = index.partitions[partition]
        for value in log.read_offsets:
            places = outputs.pop(pipeline.id_of(value), [])
            if not places and rules.ends_with_full_read:
                sentence = f"Input {value!r} of {partition} led to no output."
                yield Finding(Kind.PIPELINE_NOT_ONCE, sentence, log.first_reader(log.read_offsets[value]), partition)
            elif len(places) > 1:
                yield _several(index, f"Input {value!r} of {partition}", places)
    for identity, places in outputs.items():
        yield _several(index, f"Unknown input {identity!r}", places)


def _outputs(index: Index, pipeline: Pipeline) -> dict[Hashable, list[tuple[Partition, Value]]]:
    outputs: dict[Hashable, list[tuple[Partition, Value]]] = {}
    for partition in sorted(pipeline.outputs & index.partitions.keys(), key=str):
        for value in index.partitions[partition].read_offsets:
            outputs.setdefault(pipeline.input_of(value), []).append((partition, value))
    return outputs


def _several(index: Index, who: str, places: list[tuple[Partition, Value]]) -> Finding:
    writers: list[Operation] = []
    for partition, value in places:
        writer = index.partitions[partition].writers.get(value)
        if writer is not None and writer not in writers:
            writers.append(writer)
    names = ", ".join(f"{value!r} in {partition}" for partition, value in places)
    outputs = "output" if len(places) == 1 else "outputs"
    sentence = f"{who} led to {len(places)} {outputs}: {names}."
    return Finding(Kind.PIPELINE_NOT_ONCE, sentence, tuple(writers), places[0][0])
