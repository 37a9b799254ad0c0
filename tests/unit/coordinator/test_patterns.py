"""Regular expressions over topic names match as Python's do, in linear time and within bounds."""

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


def test_nothing_costs_nothing_however_often_it_is_repeated() -> None:
    for text in ["(((){1000}){1000}){1000}", "(((a{0}){1000}){1000}){1000}", "((()(){9}){1000}()){1000}"]:
        assert Regex(text).matches("")
        assert not Regex(text).matches("a")


def test_the_work_of_compiling_is_bounded_not_only_its_states() -> None:
    text = "a"
    for _ in range(45):
        text = f"(b?{text}c?)*"
    with pytest.raises(InvalidPattern, match="nested"):
        Regex(text)


def test_a_class_of_many_ranges_costs_a_step_no_more_than_any_other() -> None:
    many = "".join(chr(0x4E00 + 2 * number) for number in range(900))
    assert _steps(f"[{many}a-z]{{1,249}}", ["a" * 249]) == _steps("[a-z]{1,249}", ["a" * 249]) == 2 * 249


def test_characters_that_fit_alike_are_looked_at_once() -> None:
    assert _steps(r"[\w.-]*", ["orders", "Payments.v2", "a-b_c"] * 100) == 2


def test_an_end_in_the_midst_of_optional_parts_leaves_the_rest_out() -> None:
    regex = Regex("x(a|bc){0,3}y?")
    assert regex.found_in(["x", "xa", "xabca", "xaaaa", "xy", "xby", "xbcy"]) == ("x", "xa", "xabca", "xbcy", "xy")


@pytest.mark.parametrize(
    ("text", "found"),
    [("[c-ea-db]", "abcde"), ("[^b-ca-b]", "def"), (r"[^\W]", "abcdef"), ("(?i)[A-CB]", "abc"), ("[^a-f]", "")],
)
def test_classes_that_overlap(text: str, found: str) -> None:
    assert Regex(text).found_in("abcdef") == tuple(found)


@pytest.mark.parametrize("text", ["$^", "^$", "(^|x)($|y)", "a?$^"])
def test_an_empty_name_is_a_beginning_and_an_end(text: str) -> None:
    assert Regex(text).matches("")


def test_a_pattern_that_takes_too_long_for_all_topics_is_refused() -> None:
    with pytest.raises(InvalidPattern, match="too long"):
        Regex("a?" * 500).found_in(["a" * 249])


def _steps(text: str, names: list[str]) -> int:
    regex = Regex(text)
    assert regex.found_in(names) == tuple(sorted(names))
    return regex.steps
