"""Name changes that no `sync_dir` has made durable yet.

A change may persist at any time, but only after every earlier change of the same names, after all changes in a
directory that it removes, and, if it moves a directory to another parent, after all earlier changes.
"""

from random import Random
from typing import Generic, TypeVar

from penstock.host.tree import Change, Directory

N = TypeVar("N")


class PendingNames(Generic[N]):
    """The changes in the order in which they were made."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes: list[Change[N]] = []

    def take(self, directory: Directory[N]) -> list[Change[N]]:
        """Removes and returns the changes that a sync of the directory makes durable, with their prerequisites."""
        names: set[tuple[Directory[N], str]] = set()
        directories = {directory}
        needs_all = False
        taken: list[Change[N]] = []
        left: list[Change[N]] = []
        for change in reversed(self.changes):
            if needs_all or any(d in directories or (d, name) in names for d, name, _ in change.entries):
                taken.append(change)
                names.update((d, name) for d, name, _ in change.entries)
                if isinstance(change.replaced, Directory):
                    directories.add(change.replaced)
                needs_all = needs_all or change.moves_directory
            else:
                left.append(change)
        self.changes = left[::-1]
        return taken[::-1]

    def take_some(self, random: Random, chance: float) -> list[Change[N]]:
        """Removes and returns a random part that could have become durable by itself."""
        names: set[tuple[Directory[N], str]] = set()
        directories: set[Directory[N]] = set()
        taken: list[Change[N]] = []
        left: list[Change[N]] = []
        for change in self.changes:
            is_possible = not (
                any((d, name) in names for d, name, _ in change.entries)
                or (isinstance(change.replaced, Directory) and change.replaced in directories)
                or (change.moves_directory and left)
            )
            if random.random() < chance and is_possible:
                taken.append(change)
            else:
                left.append(change)
                for d, name, _ in change.entries:
                    names.add((d, name))
                    directories.add(d)
        self.changes = left
        return taken

    def take_all(self) -> list[Change[N]]:
        """Removes and returns all changes."""
        taken, self.changes = self.changes, []
        return taken
