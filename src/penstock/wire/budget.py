"""Limits on the cost of decoding a request: elements, and bytes of memory beyond those of its frame.

A compiled reader charges an array before it reads the first element, and a string or a blob when it is read. Charges
are estimates of what CPython allocates; they are computed when the reader is compiled, so that charging an array takes
two subtractions. Copies of blobs are not charged by their length: together they are never larger than the frame.
"""

from typing import Final, NamedTuple

from penstock.model.limits import DEFAULT_LIMITS, Limits

TUPLE_BYTES: Final = 72
"""The tuple of an array: the object, its garbage collector header, and the rounding of allocations."""
SLOT_BYTES: Final = 16
"""An element's slot in the list that is filled, and in the tuple that is kept."""
OBJECT_BYTES: Final = 16
"""An object's garbage collector header, which precedes its slots."""
NUMBER_BYTES: Final = 32
UUID_BYTES: Final = 64
ERROR_CODE_BYTES: Final = 512
"""An unknown error code is an object of its own, with a dict."""
STRING_BYTES: Final = 64
WIDE_STRING_BYTES: Final = 80
"""A string with non-ASCII characters; CPython then uses up to four bytes for each byte of UTF-8."""
BLOB_BYTES: Final = 48
VIEW_BYTES: Final = 192
WIDE_TIMES: Final = 4


class Budget(NamedTuple):
    """Cost limits of one request."""

    elements: int
    """Elements of all its arrays together, plus its tagged fields."""
    memory_bytes: int
    """Memory of its decoded form, without the bytes of blobs."""


HEADER_BUDGET: Final = Budget(elements=64, memory_bytes=256 * 1024)
"""For the header of a request: a client id, and a few tagged fields unknown to this version."""


def request_budget(limits: Limits = DEFAULT_LIMITS) -> Budget:
    """The budget for the body of a request."""
    return Budget(limits.request_elements_max, limits.request_memory_bytes_max)
