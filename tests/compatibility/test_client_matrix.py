"""Every client of the table performs, against a node, every operation that it offers; a missing one has a reason.

`./dev campaign compatibility` runs this and writes docs/compatibility.md from the outcomes.
"""

from collections.abc import Callable, Iterator

import pytest

from harness.penstock_node import PenstockNode
from harness.raw_client import RawClient
from tests.compatibility.node_under_test import NodeUnderTest
from tests.compatibility.rows.java import Java
from tests.compatibility.rows.row import OF_MEMBERS, Operation, Row
from tests.compatibility.rows.table import MODULES, NEEDS, offers, row_class
from tests.compatibility.scenarios import SCENARIOS

pytestmark = pytest.mark.peers

# A row stays with one worker, because some clients start slowly; rows run in parallel.
PAIRS = [
    pytest.param(
        module,
        operation,
        id=f"{module}-{operation.name.lower()}",
        marks=[
            pytest.mark.xdist_group(module),
            *([pytest.mark.seldom] if operation in row_class(module).seldom else []),
        ],
    )
    for module in MODULES
    for operation in Operation
    if operation not in row_class(module).lacks
]


@pytest.fixture(scope="module")
def enter(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Row]]:
    """Creates a row for its first scenario, and closes the previous one: some are heavy."""
    present: dict[str, Row] = {}

    def enter(module: str) -> Row:
        if module not in present:
            leave()
            # Java's tests share one JVM.
            present[module] = Java(request.getfixturevalue("oracle")) if module == "java" else row_class(module)()
        return present[module]

    def leave() -> None:
        while present:
            present.popitem()[1].close()

    yield enter
    leave()


@pytest.mark.parametrize(("module", "operation"), PAIRS)
def test_a_client_can(
    module: str,
    operation: Operation,
    enter: Callable[[str], Row],
    penstock: PenstockNode,
    penstock_client: RawClient,
    record_property: Callable[[str, object], None],
) -> None:
    row = enter(module)
    node = NodeUnderTest(penstock.bootstrap, penstock_client, f"{module}-{operation.name}".lower())
    record_property("compatibility", [module, row.version(), operation.name, node.notes])
    SCENARIOS[operation](row, node)


@pytest.mark.parametrize("module", MODULES)
def test_what_a_client_does_not_offer_has_a_reason(module: str) -> None:
    row = row_class(module)
    for operation in Operation:
        if operation in row.lacks:
            assert row.lacks[operation], operation
            assert operation not in (*NEEDS, *OF_MEMBERS) or not offers(row, operation), (
                f"{operation} is offered, and said to lack"
            )
        else:
            assert offers(row, operation), f"{operation} is neither offered nor said to lack"


def test_every_operation_has_a_scenario() -> None:
    assert set(SCENARIOS) == set(Operation)
