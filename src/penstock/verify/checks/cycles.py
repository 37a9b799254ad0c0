"""No transaction reads from itself through others (G1c), nor from a transaction that began after it had ended.

Edges run from the writer of a value to the transaction that polled it. Real time needs no edges: if paths and
several "ended before the next began" steps form a cycle, one path and one such step form a cycle too (of two such
steps, one of the beginnings is after both ends), so it is enough to propagate the latest beginning along the paths.
Cycles through the order of writes are optional and only noted: Kafka does not isolate writes.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from penstock.verify.findings import Finding, Kind
from penstock.verify.history import Value
from penstock.verify.index import Index
from penstock.verify.operations import Operation
from penstock.verify.rules import Rules

Edges: TypeAlias = Mapping[int, set[int]]
"""Maps a transaction to the transactions that must come after it, all by the index of their invoke."""


def find_cycles(index: Index, rules: Rules) -> Iterator[Finding]:
    """Yields cycles and real-time violations of reads and, with `has_write_order`, cycles through write-write edges."""
    reads = _read_edges(index)
    components = strong_components(reads)
    yield from _cycle_findings(index, components, Kind.G1C, "read from each other")
    yield from _realtime_findings(index, reads, components)
    if rules.has_write_order:
        writes = _write_edges(index)
        yield from _cycle_findings(index, strong_components(writes), Kind.G0, "wrote before each other")
        both = {node: reads.get(node, set()) | writes.get(node, set()) for node in reads.keys() | writes.keys()}
        known = {frozenset(nodes) for edges in (reads, writes) for nodes in strong_components(edges)}
        mixed = [nodes for nodes in strong_components(both) if frozenset(nodes) not in known]
        yield from _cycle_findings(index, mixed, Kind.G1C_WITH_WRITES, "read from and wrote before each other")


def _read_edges(index: Index) -> dict[int, set[int]]:
    edges: dict[int, set[int]] = {}
    for reader, transaction in index.transactions.items():
        for writer in sorted(transaction.sources):
            if writer != reader:  # A transaction that reads from itself is found as a precommitted read.
                edges.setdefault(writer, set()).add(reader)
    return edges


def _write_edges(index: Index) -> dict[int, set[int]]:
    edges: dict[int, set[int]] = {}
    for log in index.partitions.values():
        order: dict[int, Value] = dict(log.acked)
        order.update(log.reads)
        before: int | None = None
        for offset in sorted(order):
            writer = log.writers.get(order[offset])
            if writer is None or writer.invoked not in index.transactions:
                continue
            if before is not None and before != writer.invoked:
                edges.setdefault(before, set()).add(writer.invoked)
            before = writer.invoked
    return edges


def strong_components(edges: Edges) -> list[list[int]]:
    """Tarjan's strongly connected components, each after all its successors. Iterative, because paths are long."""
    found: list[list[int]] = []
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in sorted(edges):
        if root in numbers:
            continue
        path = [(root, iter(sorted(edges[root])))]
        numbers[root] = lowest[root] = len(numbers)
        stack.append(root)
        on_stack.add(root)
        while path:
            node, children = path[-1]
            for child in children:
                if child not in numbers:
                    numbers[child] = lowest[child] = len(numbers)
                    stack.append(child)
                    on_stack.add(child)
                    path.append((child, iter(sorted(edges.get(child, ())))))
                    break
                if child in on_stack:
                    lowest[node] = min(lowest[node], numbers[child])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == numbers[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    found.append(component)
    return found


def _cycle_findings(index: Index, components: list[list[int]], kind: Kind, how: str) -> Iterator[Finding]:
    for component in components:
        if len(component) > 1:
            names = ", ".join(map(str, sorted(component)[:5])) + (", …" if len(component) > 5 else "")
            operations = tuple(index.transactions[node].operation for node in sorted(component)[:5])
            yield Finding(kind, f"Transactions {names} {how} in a circle.", operations)


def _realtime_findings(index: Index, edges: Edges, components: list[list[int]]) -> Iterator[Finding]:
    """Yields transactions that ended before a transaction began from which they read, directly or indirectly."""
    latest: dict[int, Operation] = {}
    for component in reversed(components):
        operations = [index.transactions[node].operation for node in component]
        heirs = [*operations, *(latest[node] for node in component if node in latest)]
        newest = max(heirs, key=lambda operation: operation.invoked)
        for operation in operations:
            if len(component) == 1 and operation.completed < newest.invoked:
                sentence = (
                    f"Transaction {operation.invoked} of {operation.process} had ended before transaction "
                    f"{newest.invoked} of {newest.process} began, but holds information from it."
                )
                yield Finding(Kind.G1C_REALTIME, sentence, (newest, operation))
            for child in edges.get(operation.invoked, ()):
                known = latest.get(child)
                if known is None or known.invoked < newest.invoked:
                    latest[child] = newest
