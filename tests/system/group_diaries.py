"""Diaries of group members, and the invariants that must hold for them.

A diary is a file of JSON lines, one `write` each, so that a process that is killed leaves whole lines. All processes of
one machine share a clock. A member is identified by `who`: its instance id if it has one, else its life; so a static
member that comes back is the same member, as it is to the coordinator. There are four kinds of violation:

- assigned twice: two members own a partition in one generation (classic) or epoch (KIP-848).
- at the same time: two members own a partition at the same moment. The previous owner must have revoked it before;
  only a member that was notified that it had lost its partitions is excused, because its session had expired.
- commit lost: a fetched offset is older than one acknowledged before. The commits of a partition are a register: a
  fetch may see any commit that was not followed, as a whole, by another one that was acknowledged before the fetch
  began. Commits with an unknown outcome may take effect at any time.
- skipped: an offset was committed though no member of the group had read everything before it.
"""

import json
import os
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

Entry = dict[str, Any]
NOTHING: Final = -1
"""The offset of a partition for which nothing was committed."""


class Diary:
    """A file of lines that survive a kill of the writing process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: str, **more: Any) -> None:
        os.write(self._file, json.dumps({"t": time.monotonic_ns(), "kind": kind, **more}).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Shelf:
    """All diaries of a directory, read as they grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_bytes: dict[Path, int] = {}
        self.entries: list[Entry] = []

    def read_on(self) -> list[Entry]:
        """Reads and returns the new entries."""
        new = []
        for path in sorted(self._directory.glob("*.diary")):
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._read_bytes[path] = self._read_bytes.get(path, 0) + whole
            new += [json.loads(line) for line in data[:whole].splitlines()]
        self.entries += new
        return new


def findings(entries: Iterable[Entry]) -> list[str]:
    """All violations, ordered by time within each kind."""
    ordered = sorted(entries, key=lambda entry: entry["t"])
    return [
        *problems(ordered),
        *assigned_twice(ordered),
        *held_together(ordered),
        *lost_commits(ordered),
        *skipped(ordered),
    ]


def problems(entries: Sequence[Entry]) -> Iterator[str]:
    """Problems that members noticed themselves."""
    for each in entries:
        if each["kind"] == "problem":
            yield f"{each['who']} of {each['group']}: {each['text']}"


# --- assignments ------------------------------------------------------------------------------------------------------


def assigned_twice(entries: Sequence[Entry]) -> Iterator[str]:
    """Partitions that two members own in one generation or epoch."""
    owners: dict[tuple[str, int, int], str] = {}
    for each in entries:
        if each["kind"] not in ("assigned", "revoked") or each["generation"] <= 0:
            continue
        for partition in each["owned"]:
            place = each["group"], each["generation"], partition
            owner = owners.setdefault(place, each["who"])
            if owner != each["who"]:
                yield (
                    f"assigned twice: partition {partition} of {place[0]} in generation {place[1]}: "
                    f"to {owner} and to {each['who']}"
                )


def held_together(entries: Sequence[Entry]) -> Iterator[str]:
    """Partitions that two members own at the same moment, neither of whom has lost them."""
    holders: dict[tuple[str, int], set[str]] = defaultdict(set)
    held: dict[tuple[str, str], set[int]] = defaultdict(set)
    suspects: dict[tuple[str, int, str], list[str]] = {}
    """By previous owner: excused if that member has lost the partition."""
    for each in entries:
        kind = each["kind"]
        if kind not in ("assigned", "revoked", "lost", "ended"):
            continue
        group, who = each["group"], each["who"]
        mine, now = held[group, who], set(each.get("owned", ()))
        for partition in now - mine:
            for other in holders[group, partition]:
                said = f"at the same time: partition {partition} of {group} was had by {other} when {who} got it"
                suspects.setdefault((group, partition, other), []).append(said)
            holders[group, partition].add(who)
        for partition in mine - now:
            holders[group, partition].discard(who)
            found = suspects.pop((group, partition, who), [])
            if kind != "lost":
                yield from found
        held[group, who] = now
    for left in suspects.values():
        yield from left


# --- commits ----------------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """A commit of one partition."""

    began: float
    ended: float
    """Infinite if the outcome is unknown."""
    offset: int


def commits_of(entries: Sequence[Entry]) -> dict[tuple[str, int], list[Commit]]:
    """Commits by group and partition, in the order in which they began."""
    began: dict[tuple[str, int], tuple[str, int, dict[int, int]]] = {}
    found: dict[tuple[str, int], list[Commit]] = defaultdict(list)
    for each in entries:
        if each["kind"] == "commit":
            offsets = {int(partition): offset for partition, offset in each["offsets"]}
            began[each["life"], each["number"]] = each["group"], each["t"], offsets
        elif each["kind"] == "committed":
            group, at, offsets = began[each["life"], each["number"]]
            for partition in each["partitions"]:
                found[group, partition].append(Commit(at, each["t"], offsets.pop(partition)))
    for group, at, offsets in began.values():
        for partition, offset in offsets.items():
            found[group, partition].append(Commit(at, inf, offset))
    for some in found.values():
        some.sort()
    return found


def lost_commits(entries: Sequence[Entry]) -> Iterator[str]:
    """Fetches that returned an offset older than one acknowledged before."""
    registers = {place: _Register(some) for place, some in commits_of(entries).items()}
    for each in entries:
        if each["kind"] != "fetched":
            continue
        for partition, offset in each["offsets"]:
            register = registers.get((each["group"], partition)) or _Register([])
            if not register.may_show(offset, each["began"], each["t"]):
                last = register.last_acknowledged(each["began"])
                yield (
                    f"commit lost: {each['who']} fetched {offset} for partition {partition} of {each['group']}, "
                    f"after {'nothing' if last is None else last.offset} was acknowledged"
                )


class _Register:
    """The commits of one partition."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._by_offset: dict[int, list[Commit]] = defaultdict(list)
        for each in commits:
            self._by_offset[each.offset].append(each)
        acknowledged = sorted((each for each in commits if each.ended < inf), key=lambda each: each.ended)
        self._ends = [each.ended for each in acknowledged]
        self._latest: list[Commit] = []
        """Per acknowledgement: of the commits that had ended by then, the one that began last."""
        for each in acknowledged:
            self._latest.append(max(each, self._latest[-1]) if self._latest else each)

    def last_acknowledged(self, before: float) -> Commit | None:
        at = bisect_left(self._ends, before)
        return self._latest[at - 1] if at else None

    def may_show(self, offset: int, began: float, ended: float) -> bool:
        last = self.last_acknowledged(began)
        if offset == NOTHING:
            return last is None
        return any(
            each.began < ended and (last is None or each.ended >= last.began)
            for each in self._by_offset.get(offset, ())
        )


# --- records ----------------------------------------------------------------------------------------------------------


class Read:
    """The offsets of a partition that some member has read: all before `until`, and some runs after it."""

    def __init__(self) -> None:
        self.until = 0
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        if self._starts[0] <= self.until:
            self.until = max(self.until, self._ends[0])


def read_until(entries: Iterable[Entry]) -> dict[tuple[str, int], int]:
    """By group and partition: the offset before which everything was read."""
    found: dict[tuple[str, int], Read] = defaultdict(Read)
    for each in entries:
        if each["kind"] == "read":
            found[each["group"], each["partition"]].add(each["start"], each["end"])
    return {place: read.until for place, read in found.items()}


def skipped(entries: Sequence[Entry]) -> Iterator[str]:
    """Commits of offsets that no member had read up to."""
    found: dict[tuple[str, int], Read] = defaultdict(Read)
    for each in entries:
        if each["kind"] == "read":
            found[each["group"], each["partition"]].add(each["start"], each["end"])
        elif each["kind"] == "commit":
            for partition, offset in each["offsets"]:
                until = found[each["group"], partition].until
                if offset > until:
                    yield (
                        f"skipped: {each['who']} committed {offset} for partition {partition} of {each['group']}, "
                        f"of which nobody had read {until}"
                    )


def generations(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """The generations that members reported, by group."""
    found: dict[str, set[int]] = defaultdict(set)
    for each in entries:
        if each["kind"] in ("assigned", "revoked") and each["generation"] > 0:
            found[each["group"]].add(each["generation"])
    return found
