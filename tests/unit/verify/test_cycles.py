"""Tarjan's components against the plain definition, and paths longer than any call stack."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.verify.checks.cycles import strong_components

graphs = st.dictionaries(st.integers(0, 8), st.sets(st.integers(0, 8), max_size=4), max_size=9)


def reachable(edges: dict[int, set[int]], start: int) -> set[int]:
    found, waiting = {start}, [start]
    while waiting:
        for child in edges.get(waiting.pop(), set()) - found:
            found.add(child)
            waiting.append(child)
    return found


@given(graphs)
def test_components_are_what_reaches_each_other(edges: dict[int, set[int]]) -> None:
    components = strong_components(edges)
    nodes = set(edges).union(*edges.values())
    assert sorted(node for component in components for node in component) == sorted(nodes)
    from_node = {node: reachable(edges, node) for node in nodes}
    for component in components:
        node = component[0]
        assert set(component) == {other for other in from_node[node] if node in from_node[other]}
    place = {node: number for number, component in enumerate(components) for node in component}
    assert all(place[child] <= place[node] for node, children in edges.items() for child in children)


def test_a_long_path_needs_no_stack() -> None:
    length = 50_000
    assert len(strong_components({node: {node + 1} for node in range(length)})) == length + 1
    assert len(strong_components({node: {(node + 1) % length} for node in range(length)})) == 1
