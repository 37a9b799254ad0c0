"""Patterns over topic names match what Python's would, in linear time, within bounds."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.patterns import InvalidPattern, Regex

PATTERNS = [
    "a", "a|b", "a*", "(a|b)+c?", "orders-.*", "[a-c]{2,3}", "[^a]b", r"\d+\.\w*", "(?:ab)*", "a{3}",
    "(a?){4}a{4}", "^a$", "x|",
    r"[\w.-]+", "[[:alpha:]]+1", "a.?b", r"\Qa.b\E", "(?i)Abc", "a{,2}", "b{2,}", "[]a]", "[a-]b", "",
]  # fmt: skip
NAMES = [
    "",
    "a",
    "b",
    "c",
    "ab",
    "abc",
    "aaaa",
    "orders-1",
    "12.x",
    "a.b",
    "aab",
    "bb",
    "bbb",
    "A",
    "ABC",
    "x",
    "abc1",
    "]",
    "-b",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_elsewhere(pattern: str) -> None:
    theirs = pattern.replace(r"\Qa.b\E", r"a\.b").replace("[[:alpha:]]", "[a-zA-Z]").replace("a{,2}", r"a\{,2\}")
    theirs = theirs.replace("[]a]", r"[\]a]")
    for name in NAMES:
        assert Regex(pattern).matches(name) == bool(re.fullmatch(theirs, name)), (pattern, name)


@given(st.from_regex(r"\A([ab.]|[ab]\*|\(a\|b\)|[ab]\?|\[ab\]\+){0,8}\Z"), st.text("abc", max_size=8))
def test_patterns_match_as_python_matches(pattern: str, name: str) -> None:
    assert Regex(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@given(st.text(max_size=30))
def test_whatever_the_text_it_is_a_pattern_or_refused(text: str) -> None:
    with suppress(InvalidPattern):
        Regex(text).matches("orders")


@pytest.mark.parametrize(
    "text", ["(", ")", "*a", "a**", "[a", "[b-a]", r"\1", "(?=a)", "a{2,1}", "\\", "[[:x:]]", r"\p"]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        Regex(text)


@pytest.mark.parametrize("text", ["a" * 2_000, "((a{100}){100}){100}", "(" * 60 + ")" * 60, "a{5000}"])
def test_what_is_too_large_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        Regex(text)


def test_what_kills_others_is_nothing_here() -> None:
    assert not Regex("(a*)*(a*)*b").matches("a" * 249)
    assert not Regex("(.*)(.*)(.*)(.*)x").matches("a" * 249)


def test_a_pattern_that_takes_too_long_for_all_topics_is_refused() -> None:
    names = [f"{number}" * 40 for number in range(1_000)]
    with pytest.raises(InvalidPattern, match="too long"):
        Regex("(a|.){1,300}x").found_in(names)
