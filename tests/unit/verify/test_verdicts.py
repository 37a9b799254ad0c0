"""Verdicts: every kind has its rule, an unchecked rule is not called kept, and lost records are lost."""

import pytest

from penstock.verify.findings import Kind
from penstock.verify.rules import Rules
from penstock.verify.verdicts import RULES, Verdict, verdicts_of
from tests.unit.verify.story import P, Story

LAST = Rules(final_readers=frozenset({"last-0", "last-1"}))


def words(story: Story, rules: Rules = LAST) -> dict[Kind, str]:
    return {each.kind: each.word for each in verdicts_of(story.report(rules))}


def whole(*seen: tuple[int, str]) -> Story:
    """Sends three records, which a reader follows; at the end the two final readers read `seen`."""
    story = Story()
    story.send("w", (0, "a"), (1, "b"))
    story.send("w", (2, "c"))
    story.poll("r", (0, "a"), (1, "b"), (2, "c"))
    for name in sorted(LAST.final_readers, key=str):
        story.poll(str(name), *seen)
    return story


def test_every_kind_has_a_rule() -> None:
    assert set(RULES) == set(Kind)
    assert len({rule for rule, _ in RULES.values()}) == len(Kind)


def test_what_was_looked_at_is_kept_and_what_was_not_is_not() -> None:
    story = whole((0, "a"), (1, "b"), (2, "c"))
    found = words(story)
    assert found[Kind.LOST_WRITE] == found[Kind.UNSEEN] == found[Kind.POLL_SKIP] == "kept"
    assert found[Kind.LISTED_OFFSET_REGRESS] == found[Kind.TORN_TRANSACTION] == "not looked at"
    story.answer("asker", "list_offsets", [P, "latest", 3])
    assert words(story)[Kind.LISTED_OFFSET_REGRESS] == "kept"


def test_a_verdict_says_how_much_it_rests_on() -> None:
    (found,) = [each for each in verdicts_of(whole((0, "a")).report()) if each.kind is Kind.INCONSISTENT_OFFSETS]
    assert found == Verdict(Kind.INCONSISTENT_OFFSETS, RULES[Kind.INCONSISTENT_OFFSETS][0], looked_at=5, broken=0)
    assert found.as_dict()["verdict"] == "kept"


@pytest.mark.parametrize(
    ("seen", "gone"), [(((0, "a"), (1, "b")), 1), (((0, "a"),), 2), ((), 3)], ids=["last", "two", "all"]
)
def test_an_end_that_was_cut_off_is_gone_even_if_somebody_saw_it(seen: tuple[tuple[int, str], ...], gone: int) -> None:
    """It is detected only with the names of the final readers: each record was acknowledged and read once."""
    story = whole(*seen)
    assert story.report().is_clean
    report = story.report(LAST)
    assert report.anomalies == {Kind.UNSEEN: gone}
    assert all("in the end" in each.sentence for each in report.findings)
    assert words(story)[Kind.UNSEEN] == "broken"


def test_of_a_run_that_was_cut_nothing_is_gone() -> None:
    rules = Rules(ends_with_full_read=False, final_readers=LAST.final_readers)
    assert whole((0, "a")).report(rules).is_clean


def test_those_who_read_last_must_have_been_there() -> None:
    story = Story()
    story.send("w", (0, "a"))
    story.poll("r", (0, "a"))
    assert story.report(LAST).is_clean


def test_what_only_one_of_the_last_readers_got_is_gone_for_the_other() -> None:
    story = whole((0, "a"), (1, "b"), (2, "c"))
    story.invoke("last-1", "crash").ok()
    story.poll("last-1", (0, "a"), (1, "b"))
    assert story.report(LAST).anomalies == {Kind.UNSEEN: 1}


def test_what_was_read_once_and_overwritten_is_lost() -> None:
    """A leader acknowledges alone and dies; the next leader assigns the same offset to another record."""
    story = Story()
    story.send("w", (0, "a"))
    story.send("w", (1, "b"))
    story.poll("r", (0, "a"), (1, "b"))
    story.send("v", (1, "c"))
    for name in ("last-0", "last-1"):
        story.poll(name, (0, "a"), (1, "c"))
    assert Kind.LOST_WRITE not in story.report().anomalies, "somebody has read it"
    report = story.report(LAST)
    assert report.anomalies[Kind.LOST_WRITE] == 1
    (lost,) = [each for each in report.findings if each.kind is Kind.LOST_WRITE]
    assert (
        lost.sentence == "'b' was acknowledged at offset 1 of orders-0 and read there, but in the end 'c' lies there."
    )


def test_what_lies_elsewhere_in_the_end_is_not_lost() -> None:
    story = Story()
    story.send("w", (0, "a"))
    story.send("w", (1, "b"))
    story.poll("r", (0, "a"), (1, "b"))
    for name in ("last-0", "last-1"):
        story.poll(name, (0, "a"), (1, "c"), (2, "b"))
    assert Kind.LOST_WRITE not in story.report(LAST).anomalies
    assert Kind.DUPLICATE in story.report(LAST).anomalies
