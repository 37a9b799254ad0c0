"""The cluster of a command that also takes `--dir`: the directory of a sandbox is as good as its addresses.

An explicit `--dir` counts as an address; without one, the rule of all commands applies.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli.connection.connecting import find, run_with_client
from penstock.cli.errors import Failed
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from penstock.client.bootstrap import FoundCluster
    from penstock.client.client import Client

T = TypeVar("T")

CONNECT_MS = 3_000
"""Short, because a node that does not answer is one of several."""
AnyDirOption = Annotated[Path, typer.Option("--dir", help="Instead of -b: the directory of a sandbox.")]


def find_at(bootstrap: str | None, directory: Path = HOME) -> "FoundCluster":
    """The cluster of -b, or of --dir if that is given, or of the rule."""
    from penstock.client.bootstrap import read_endpoint

    if bootstrap is not None or directory == HOME:
        return find(bootstrap)
    addresses = read_endpoint(directory)
    if addresses is None:
        raise Failed(
            f"there is no cluster in {directory}: `penstock sandbox up --dir {directory}` makes one, "
            "or say where yours is with -b host:port"
        )
    return replace(find(addresses), source=f"given by --dir {directory}", folder=directory)


def run_with_cluster(
    bootstrap: str | None, directory: Path, timeout_s: float, work: "Callable[[Client], Awaitable[T]]"
) -> T:
    """Runs the work with a client of that cluster; returns its result."""
    return run_at(find_at(bootstrap, directory), timeout_s, work)


def run_at(found: "FoundCluster", timeout_s: float, work: "Callable[[Client], Awaitable[T]]") -> T:
    """The same for a cluster that was found."""
    return run_with_client(found, timeout_s, work, connect_timeout_ms=CONNECT_MS)
