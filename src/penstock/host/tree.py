"""A directory tree in memory, with the errors of a POSIX one. It holds names, not the content of files.

Methods that change names return a Change: the assignments that were made, so that a lossy disk can undo or repeat them.
"""

import errno
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from penstock.host.paths import split, trouble

N = TypeVar("N")

NAME_BYTES_MAX = 255
"""Maximum size of one part of a path, as in every common file system (NAME_MAX)."""


class Directory(Generic[N]):
    """Names, and the current node of each."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, Directory[N] | N] = {}


Entry: TypeAlias = tuple[Directory[N], str, Directory[N] | N | None]


class Change(NamedTuple, Generic[N]):
    """Assigns to each name a node, or nothing; all names change atomically."""

    entries: tuple[Entry[N], ...]
    replaced: Directory[N] | N | None
    """The node that lost its name."""
    moves_directory: bool = False
    """Whether a directory moves to another parent."""


class Tree(Generic[N]):
    """Files and directories by path."""

    def __init__(self) -> None:
        self.root: Directory[N] = Directory()

    def find(self, path: str) -> Directory[N] | N | None:
        """The node at a path, or None."""
        node: Directory[N] | N = self.root
        for part in split(path):
            if not isinstance(node, Directory):
                return None
            found = node.entries.get(part)
            if found is None:
                return None
            node = found
        return node

    def directory(self, path: str) -> Directory[N]:
        """The directory at a path."""
        return self._walk(split(path), path)

    def place(self, path: str) -> tuple[Directory[N], str]:
        """The directory that has, or would have, the last part of the path, and that part."""
        parts = split(path)
        if not parts:
            raise trouble(errno.EISDIR, path)
        name = _checked(parts.pop(), path)
        return self._walk(parts, path), name

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(self.directory(path).entries)

    def make_dir(self, path: str) -> list[Change[N]]:
        """Creates the directory and its missing parents."""
        changes: list[Change[N]] = []
        directory = self.root
        parts = split(path)
        for number, part in enumerate(parts, 1):
            node = directory.entries.get(part)
            if node is None:
                node = Directory()
                directory.entries[_checked(part, path)] = node
                changes.append(Change(((directory, part, node),), None))
            if not isinstance(node, Directory):
                raise trouble(errno.EEXIST if number == len(parts) else errno.ENOTDIR, path)
            directory = node
        return changes

    def remove_dir(self, path: str) -> Change[N]:
        """Removes an empty directory."""
        parent, name = self.place(path)
        node = parent.entries.get(name)
        if node is None:
            raise trouble(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise trouble(errno.ENOTDIR, path)
        if node.entries:
            raise trouble(errno.ENOTEMPTY, path)
        del parent.entries[name]
        return Change(((parent, name, None),), node)

    def unlink(self, path: str) -> Change[N]:
        """Removes a file's name."""
        parent, name = self.place(path)
        node = parent.entries.get(name)
        if node is None:
            raise trouble(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise trouble(errno.EISDIR, path)
        del parent.entries[name]
        return Change(((parent, name, None),), node)

    def rename(self, old: str, new: str) -> Change[N] | None:
        """Moves a node; None if both paths are the same."""
        source, old_name = self.place(old)
        node = source.entries.get(old_name)
        if node is None:
            raise trouble(errno.ENOENT, old)
        parts = split(new)
        if not parts:
            raise trouble(errno.EBUSY, new)
        new_name = _checked(parts.pop(), new)
        target = self._walk(parts, new, never=node)
        if source is target and old_name == new_name:
            return None
        replaced = target.entries.get(new_name)
        if isinstance(replaced, Directory):
            if not isinstance(node, Directory):
                raise trouble(errno.EISDIR, new)
            if replaced.entries:
                raise trouble(errno.ENOTEMPTY, new)
        elif replaced is not None and isinstance(node, Directory):
            raise trouble(errno.ENOTDIR, new)
        del source.entries[old_name]
        target.entries[new_name] = node
        moves_directory = source is not target and isinstance(node, Directory)
        return Change(((source, old_name, None), (target, new_name, node)), replaced, moves_directory)

    def _walk(self, parts: list[str], path: str, never: Directory[N] | N | None = None) -> Directory[N]:
        directory = self.root
        for part in parts:
            node = directory.entries.get(part)
            if node is None:
                raise trouble(errno.ENOENT, path)
            if node is never:  # a directory cannot move into itself
                raise trouble(errno.EINVAL if isinstance(node, Directory) else errno.ENOTDIR, path)
            if not isinstance(node, Directory):
                raise trouble(errno.ENOTDIR, path)
            directory = node
        return directory


def _checked(name: str, path: str) -> str:
    if len(name.encode()) > NAME_BYTES_MAX:
        raise trouble(errno.ENAMETOOLONG, path)
    return name


def files_below(directory: Directory[N], path: str) -> list[tuple[str, N]]:
    """The files at and below a directory, in the order of their paths."""
    found: list[tuple[str, N]] = []
    for name in sorted(directory.entries):
        node = directory.entries[name]
        below = f"{path}/{name}" if path else name
        if isinstance(node, Directory):
            found += files_below(node, below)
        else:
            found.append((below, node))
    return found
