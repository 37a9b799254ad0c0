"""The kernels as plain Python, on arrays that refuse every index that machine code would not check."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.spark.columns import kernels
from penstock.spark.columns.loading import Kernels


class Guarded:
    """An array that refuses negative indices and slices beyond its end, and returns plain numbers."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        self.check(index)
        found = self.array[index]
        return found if isinstance(index, slice) else int(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.check(index)
        self.array[index] = value

    def check(self, index: Any) -> None:
        if isinstance(index, slice):
            if not 0 <= index.start <= index.stop <= len(self.array):
                raise IndexError(f"{index} in an array of {len(self.array)}")
            return
        for place, size in zip(index if isinstance(index, tuple) else (index,), self.array.shape, strict=True):
            if not 0 <= place < size:
                raise IndexError(f"{index} in an array of {self.array.shape}")


def guard(argument: Any) -> Any:
    return Guarded(argument) if isinstance(argument, np.ndarray) else argument


GUARDED = Kernels(
    lambda *arguments: kernels.fill(*map(guard, arguments)),
    lambda *arguments: kernels.fill_headers(*map(guard, arguments)),
)
