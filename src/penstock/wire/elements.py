"""Counts the array elements of a message, as a cheap estimate of the cost of writing it."""

from functools import cache
from typing import Any

from penstock.wire.declare import Array, Struct


def has_more_elements(message: Struct, count: int) -> bool:
    """Whether all arrays of a message together have more than `count` elements; visits about that many."""
    return _count(message, count) > count


def _count(value: Struct, count_max: int) -> int:
    found = 0
    for name, is_array, has_inner in _arrays(type(value)):
        inner: Any = getattr(value, name)
        if inner is None:
            continue
        if not is_array:
            found += _count(inner, count_max - found)
        else:
            found += len(inner)
            if has_inner and found <= count_max:
                for each in inner:
                    found += _count(each, count_max - found)
                    if found > count_max:
                        break
        if found > count_max:
            break
    return found


@cache
def _arrays(kind: type[Struct]) -> tuple[tuple[str, bool, bool], ...]:
    """Fields that hold arrays, or structs with arrays: name, whether it is an array, whether arrays are nested."""
    found = []
    for field in kind.FIELDS:
        is_array = isinstance(field.type, Array)
        item = field.type.item if isinstance(field.type, Array) else field.type
        has_inner = isinstance(item, type) and bool(_arrays(item))
        if is_array or has_inner:
            found.append((field.name, is_array, has_inner))
    return tuple(found)
