"""Plants a bug in a function: one piece of its source is replaced for the duration of a test.

The function's code object is exchanged, so that every module that has imported the function gets the bug. A piece that
is not found exactly once fails the test that plants it: a change of the code requires a change of its mutants.
"""

import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any, NamedTuple

import pytest


class Edit(NamedTuple):
    """One piece of a function's source, and its replacement."""

    function: Callable[..., Any]
    old: str
    new: str


def plant(patch: pytest.MonkeyPatch, *edits: Edit) -> None:
    """Plants all edits together."""
    for edit in edits:
        patch.setattr(edit.function, "__code__", code_of(edit))


def code_of(edit: Edit) -> CodeType:
    """The function's code with the edit; AssertionError if the piece is not found exactly once."""
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
