"""Plants a bug in a function: one piece of its source is replaced, for the time of a test.

The function's code object is exchanged, so that every module that has imported the function meets the bug. A piece that
is not found exactly once fails the test that plants it: code that has moved must take its mutants along.
"""

import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

import pytest


class Edit(NamedTuple):
    """One piece of one function, and what stands there instead."""

    function: Callable[..., Any]
    old: str
    new: str


def plant(patch: pytest.MonkeyPatch, *edits: Edit) -> None:
    """Plants all of them together."""
    for edit in edits:
        patch.setattr(edit.function, "__code__", code_of(edit))


def code_of(edit: Edit) -> CodeType:
    """The function's code with the edit; AssertionError where the piece is not there, or is there twice."""
    function, old, new = edit
    before = function.__code__
    source = textwrap.dedent(inspect.getsource(function))
    found = source.count(old)
    assert found == 1, f"{function.__qualname__} has {found} times what the mutant replaces: {old!r}"
    text = "\n" * (before.co_firstlineno - 1) + source.replace(old, new)
    (code,) = (
        each
        for each in compile(text, before.co_filename, "exec", dont_inherit=True).co_consts
        if isinstance(each, CodeType) and each.co_name == before.co_name
    )
    assert code.co_freevars == before.co_freevars, f"{function.__qualname__} is a closure"
    return code
