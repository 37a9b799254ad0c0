"""Every client of the table does, against a node, everything that it offers; what it does not offer has a reason.

`./dev compatibility` runs this and writes docs/compatibility.md from what it saw.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.compatibility.penstock_node import PenstockNode
from tests.compatibility.raw_client import RawClient
from tests.compatibility.rows.java import Java
from tests.compatibility.rows.row import OF_MEMBERS, Operation, Row
from tests.compatibility.rows.table import MODULES, NEEDS, offers, row_class
from tests.compatibility.stage import Stage
from tests.compatibility.stories import STORIES

pytestmark = pytest.mark.strangers

# A row stays with one worker, because some clients take long to start; rows run side by side.
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
    """Brings a row in when its first story is told. The one before leaves: some are heavy."""
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
    stage = Stage(penstock.bootstrap, penstock_client, f"{module}-{operation.name}".lower())
    record_property("compatibility", [module, row.version(), operation.name, stage.notes])
    STORIES[operation](row, stage)


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


def test_every_operation_has_a_story() -> None:
    assert set(STORIES) == set(Operation)
