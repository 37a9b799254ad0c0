"""Runs the compiled kernels on mutated batches, each array between pages that nobody may touch.

`python -m tests.unit.spark.columns.fence --seed 1 --runs 20000` ends with a line of figures, or with SIGSEGV at the
first byte that is read or written outside. Arrays lie at the end of their pages in every other run and at the start in
the others. `--plant` gives the kernel a table that says one byte too much, to show that the fence holds.
"""

import argparse
import ctypes
import mmap
import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import ProtocolError
from penstock.records.header import BatchView
from penstock.spark.columns import kernels
from penstock.spark.columns.compiled import CompiledColumns
from penstock.spark.columns.errors import UnreadableBatch
from penstock.spark.columns.loading import Kernels, load
from penstock.spark.columns.plain import PlainColumns
from penstock.spark.columns.shape import RecordRange
from tests.unit.spark.columns.mutation import mutate, random_batch

BYTES_MAX = 64 * 1024
FIELD_BYTES = 4 * BYTES_MAX
ARGUMENTS = 15
PROT_NONE = 0


class Fence:
    """Memory for arrays, with an inaccessible page on either side of each."""

    def __init__(self) -> None:
        self.is_at_end = True
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fields = [self.field() for _ in range(ARGUMENTS)]

    def field(self) -> NDArray[np.uint8]:
        memory = mmap.mmap(-1, FIELD_BYTES + 2 * mmap.PAGESIZE)
        whole = np.frombuffer(memory, np.uint8)
        for place in (0, mmap.PAGESIZE + FIELD_BYTES):
            page = ctypes.c_void_p(whole.ctypes.data + place)
            assert self.libc.mprotect(page, ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE) == 0
        return whole[mmap.PAGESIZE : mmap.PAGESIZE + FIELD_BYTES]

    def moved(self, number: int, array: NDArray[Any]) -> NDArray[Any]:
        """Copies the array next to an inaccessible page."""
        field = self.fields[number]
        assert array.nbytes <= FIELD_BYTES
        place = field[FIELD_BYTES - array.nbytes :] if self.is_at_end else field[: array.nbytes]
        copy = place.view(array.dtype).reshape(array.shape)
        copy[...] = array
        copy.flags.writeable = array.flags.writeable
        return copy

    def run(self, kernel: Any, *arguments: Any) -> bool:
        """Calls the kernel with copies, and copies its output back."""
        copies = [
            self.moved(number, each) if isinstance(each, np.ndarray) else each for number, each in enumerate(arguments)
        ]
        is_right = bool(kernel(*copies))
        for argument, copy in zip(arguments, copies, strict=True):
            if isinstance(argument, np.ndarray) and argument.flags.writeable:
                argument[...] = copy
        return is_right


def fenced(run: Kernels, fence: Fence) -> Kernels:
    return Kernels(
        lambda *arguments: fence.run(run.fill, *arguments),
        lambda *arguments: fence.run(run.fill_headers, *arguments),
    )


def campaign(seed: int, runs: int) -> str:
    """Decodes mutated batches with both decoders, asserts that they agree, and returns a summary."""
    dice = random.Random(seed)
    fence = Fence()
    compiled = load()
    assert compiled is not None
    kernels_between_fences = fenced(compiled, fence)
    accepted = refused = 0
    for number in range(runs):
        fence.is_at_end = number % 2 == 0
        data = bytes(mutate(dice, random_batch(dice, base_offset=100)))
        wanted = RecordRange(
            "orders", 0, dice.choice((0, 101)), dice.choice((104, 2**62)), has_headers=dice.random() < 0.5
        )
        columns = CompiledColumns(kernels_between_fences, wanted, BYTES_MAX)
        plain = PlainColumns(wanted, BYTES_MAX)
        batch = BatchView(data)
        expected = None
        try:
            plain.add(batch)
            expected = plain.finish()
            columns.add(batch)
        except UnreadableBatch:
            refused += 1
            if expected is not None:
                raise
            expect_refusal(columns, batch)
            continue
        accepted += 1
        found = columns.finish()
        assert found.equals(expected), f"batch {number} of seed {seed}"
        found.validate(full=True)
    return f"{runs} batches of seed {seed}: {accepted} accepted, {refused} refused, by both decoders alike"


def expect_refusal(columns: CompiledColumns, batch: BatchView) -> None:
    """Checks that the kernels refuse a batch that the plain decoder refuses, unless it was not decompressed."""
    try:
        columns.add(batch)
    except ProtocolError:
        return
    assert columns.fill() is None


def plant() -> None:
    """Runs a kernel that assumes a payload longer than it is; it must crash."""
    fence = Fence()
    compiled = load()
    assert compiled is not None
    wanted = RecordRange("orders", 0, 0, 2**62)
    columns = CompiledColumns(fenced(compiled, fence), wanted, BYTES_MAX)
    columns.add(BatchView(bytes(random_batch(random.Random(3), 0))))
    line = list(columns._sources[0].table[0])
    line[kernels.END] += 1
    line[kernels.COUNT] += 1
    columns._sources[0].table[0] = tuple(line)
    columns.row_count += 1
    columns.fill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--plant", action="store_true")
    options = parser.parse_args()
    if options.plant:
        plant()
    else:
        print(campaign(options.seed, options.runs))
