"""The data that would survive a power cut, kept on the inner disk of a lossy one.

The inner disk holds every file that a chain of durable names reaches, with its durable content, and nothing else. A
file that no durable name reaches keeps its durable content in memory, or in an inner file without a name.
"""

from typing import TypeAlias

from penstock.host.memory import MemoryFile
from penstock.host.tree import Change, Directory
from penstock.host.unsynced import Unsynced
from penstock.model.ports import Disk

COPY_BYTES = 1024 * 1024


class Node:
    """A file, independent of its names. `content` is loaded while it is needed; see `Survivors.release`."""

    __slots__ = ("content", "is_linked", "number", "opens")

    def __init__(self, number: int) -> None:
        self.number = number
        self.opens = 0
        self.is_linked = True
        self.content: Unsynced | None = None


AnyNode: TypeAlias = Directory[Node] | Node


class Survivors:
    """The durable names, and their mapping to the inner disk."""

    __slots__ = ("_inner", "_next_number", "_places", "_root", "_saved", "loaded")

    def __init__(self, inner: Disk) -> None:
        self._inner = inner
        self._root: Directory[Node] = Directory()
        self._saved: dict[Directory[Node], dict[str, AnyNode]] = {}
        self._places: dict[AnyNode, tuple[Directory[Node], str]] = {}
        self._next_number = 0
        self.loaded: dict[int, Node] = {}
        """Files with loaded content, by number."""

    def load(self, root: Directory[Node]) -> None:
        """Fills an empty tree with the files of the inner disk."""
        self._root = root
        self._load(root, "")

    def new_node(self) -> Node:
        """A file without durable name or content."""
        self._next_number += 1
        return Node(self._next_number)

    def is_saved(self, node: AnyNode) -> bool:
        """Whether the file has a durable name, reachable or not."""
        return node in self._places

    def inner_path(self, node: AnyNode) -> str | None:
        """Its path on the inner disk; None if no chain of durable names leads there."""
        parts: list[str] = []
        while node is not self._root:
            place = self._places.get(node)
            if place is None:
                return None
            node, name = place
            parts.append(name)
        parts.reverse()
        return "/".join(parts)

    def content(self, node: Node) -> Unsynced:
        """The file's content, loaded if necessary."""
        if node.content is None:
            path = self.inner_path(node)
            node.content = Unsynced(MemoryFile("", bytearray()) if path is None else self._inner.open(path))
            self.loaded[node.number] = node
        return node.content

    def release(self, node: Node) -> None:
        """Releases content that can be loaded again."""
        if node.content is not None and node.content.is_clean and self.inner_path(node) is not None:
            self.forget(node)

    def forget(self, node: Node) -> None:
        """Releases content that will not be needed again."""
        if node.content is not None:
            node.content.base.close()
            node.content = None
            del self.loaded[node.number]

    def close(self) -> None:
        """Closes every file of the inner disk."""
        for node in list(self.loaded.values()):
            self.forget(node)

    def commit(self, change: Change[Node]) -> None:
        """Makes one change durable. Its prerequisites must have been committed before; see names.py."""
        if len(change.entries) == 2:
            (old_parent, old_name, _), (parent, name, node) = change.entries
            assert node is not None
            self._move(old_parent, old_name, parent, name, node)
            return
        ((parent, name, node),) = change.entries
        saved = self._saved.setdefault(parent, {})
        path = self._reach(parent, name)
        if node is None:
            removed = saved.pop(name)
            del self._places[removed]
            self._withdraw(removed, path)
        else:
            saved[name] = node
            self._places[node] = parent, name
            self._install(node, path)

    def _load(self, directory: Directory[Node], path: str) -> None:
        names = self._inner.list(path)
        saved = self._saved[directory] = {}
        for name in names:
            node: AnyNode
            try:
                self._load(node := Directory(), f"{path}/{name}" if path else name)
            except NotADirectoryError:
                node = self.new_node()
            directory.entries[name] = saved[name] = node
            self._places[node] = directory, name

    def _reach(self, directory: Directory[Node], name: str) -> str | None:
        path = self.inner_path(directory)
        return None if path is None else f"{path}/{name}" if path else name

    def _move(
        self, old_parent: Directory[Node], old_name: str, parent: Directory[Node], name: str, node: AnyNode
    ) -> None:
        source, target = self._reach(old_parent, old_name), self._reach(parent, name)
        saved = self._saved.setdefault(parent, {})
        replaced = saved.pop(name, None)
        if replaced is not None:
            del self._places[replaced]
        if source is not None and target is not None:
            self._inner.rename(source, target)
        else:
            if replaced is not None:
                self._withdraw(replaced, target)
            if source is not None:
                self._load_below(node)
                self._withdraw(node, source)
        del self._saved[old_parent][old_name]
        saved[name] = node
        self._places[node] = parent, name
        if source is None:
            self._install(node, target)

    def _load_below(self, node: AnyNode) -> None:
        if isinstance(node, Directory):
            for child in self._saved.get(node, {}).values():
                self._load_below(child)
        else:
            self.content(node)

    def _install(self, node: AnyNode, path: str | None) -> None:
        """Creates a durable name, with everything below it."""
        if path is None:
            return
        if isinstance(node, Directory):
            self._inner.make_dir(path)
            for name, child in self._saved.get(node, {}).items():
                self._install(child, f"{path}/{name}")
            return
        base = self._inner.open(path, create=True)
        if node.content is None:
            base.close()
            return
        old = node.content.base
        for position in range(0, old.size(), COPY_BYTES):
            base.write(position, old.read(position, COPY_BYTES))
        node.content.base = base
        old.close()

    def _withdraw(self, node: AnyNode, path: str | None) -> None:
        """Removes a durable name, with everything below it. Loaded content stays readable."""
        if path is None:
            return
        if isinstance(node, Directory):
            for name, child in self._saved.get(node, {}).items():
                self._withdraw(child, f"{path}/{name}")
            self._inner.remove_dir(path)
            return
        self._inner.unlink(path)
