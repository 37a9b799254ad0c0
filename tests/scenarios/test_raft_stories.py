"""The transcripts in `raft/` match the present code, and each shows what it claims to show."""

import pytest

from penstock.raft.leader import Leader
from penstock.raft.messages import Fetch
from penstock.raft.raft import Raft
from penstock.raft.roles import Role
from tests.scenarios.raft_stories import FOLDER, Story, retell

STORIES = sorted(path.name for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", STORIES)
def test_the_transcript_is_what_happens(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert retell(text) == text, "read the difference; python -m tests.scenarios.raft_stories writes it anew"


def test_there_are_stories() -> None:
    assert len(STORIES) >= 10


def told(*commands: str, voters: int = 3, spares: int = 0) -> Story:
    story = Story(voters, spares)
    for command in commands:
        story.command(command)
    return story


def role_of(story: Story, node_id: int) -> Role:
    raft = story.world.nodes[node_id].raft
    assert raft is not None
    return raft.role


def epoch_of(story: Story, node_id: int) -> int:
    raft = story.world.nodes[node_id].raft
    assert raft is not None
    return raft.epoch


AWAY_AND_BACK = ("start 1 2 3", "until 3 has committed 2", "cut 1-3 2-3", "run 9000", "heal", "run 3000")


def test_who_was_away_disturbs_nobody() -> None:
    story = told(*AWAY_AND_BACK)
    assert [epoch_of(story, node_id) for node_id in (1, 2, 3)] == [1, 1, 1]
    assert role_of(story, 1) is Role.LEADER


def test_without_pre_votes_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Raft, "_ask_around", lambda self, now: (self._move(Role.PROSPECTIVE), self._stand(now)))
    story = told(*AWAY_AND_BACK)
    assert epoch_of(story, 1) > 1


def test_a_leader_that_hears_nobody_resigns() -> None:
    story = told("start 1 2 3", "until 3 has committed 2", "cut 2>1 3>1", "run 3500")
    assert role_of(story, 1) is not Role.LEADER


def test_without_the_check_it_would_lead_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "_heard_from_majority_at", lambda _self, now: now)
    story = told("start 1 2 3", "until 3 has committed 2", "cut 2-1 3-1", "run 3500")
    assert role_of(story, 1) is Role.LEADER
    assert role_of(story, 2) is Role.LEADER


def test_a_static_voter_with_a_wiped_disk_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """R31, KAFKA-12181: without directory ids it is the same voter, whose fetches begin at 0 again."""
    story = told("start 1 2 3", "until 3 has committed 2", "append 1 5 6", "run 500")
    world = story.world
    key = world.nodes[3].key
    monkeypatch.setattr(type(world.nodes[3]), "_new_directory_id", lambda _self: key.directory_id)
    story.command("wipe 3")
    world.checks.wiped.clear()  # nothing else is lost with it
    story.command("start 3")
    leader = world.nodes[1].raft
    assert leader is not None
    before = leader.high_watermark
    story.command("run 4000")
    assert world.nodes[3].disk.log.end_offset == before
    assert leader.high_watermark == before
    story.command("append 1 7")
    story.command(f"until 3 has committed {before + 1}")


def test_a_leader_that_insists_on_rising_offsets_locks_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    on_fetch = Leader.on_fetch

    def insists(self: Leader, token: object, fetch: Fetch, now: int) -> None:
        known = self.progress.get(fetch.replica)
        if known is None or fetch.offset >= known.end_offset:
            on_fetch(self, token, fetch, now)

    monkeypatch.setattr(Leader, "on_fetch", insists)
    with pytest.raises(AssertionError):
        test_a_static_voter_with_a_wiped_disk_catches_up(monkeypatch)
