"""Where the cluster is that a command is about: where -b says, or one of this machine, found by its folder.

`-b` goes first, then a `--dir` that was given, then PENSTOCK_BOOTSTRAP, then the cluster of the present folder; whoever
has none of these is led where every other command goes. Nothing that somebody said is passed over for what lies around.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli.failing import Failed

if TYPE_CHECKING:
    from penstock.cli.cluster_nodes import LocalCluster
    from penstock.client.client import Client

T = TypeVar("T")

HOME = Path(".penstock/cluster")
CONNECT_MS = 3_000
"""A node that does not answer is one of several."""
DirOption = Annotated[Path, typer.Option("--dir", help="Where the cluster's files are.")]
AnyDirOption = Annotated[
    Path, typer.Option("--dir", help="A cluster on this machine, unless -b says where another is.")
]


def whereabouts(bootstrap: str | None, directory: Path = HOME) -> "tuple[str | None, LocalCluster | None]":
    """Its addresses, None for where every command looks; and its files, when it is one of this machine."""
    from penstock.cli.cluster_nodes import LocalCluster
    from penstock.client.bootstrap import VARIABLE

    if bootstrap is not None:
        return bootstrap, None
    is_said = directory != HOME
    if not is_said and (os.environ.get(VARIABLE, "").strip() or not (directory / "cluster.json").exists()):
        return None, None
    local = LocalCluster.open(directory)
    return local.bootstrap, local


def run_with_cluster(
    bootstrap: str | None, directory: Path, timeout_s: float, work: "Callable[[Client], Awaitable[T]]"
) -> T:
    """What the work gives, done by a client of that cluster."""
    from penstock.cli.running import run_with_client
    from penstock.client.errors import Unreachable

    place, local = whereabouts(bootstrap, directory)
    try:
        return run_with_client(place, timeout_s, work, connect_timeout_ms=CONNECT_MS)
    except Unreachable as error:
        if local is None:
            raise
        raise Failed(
            f"nobody answers of the cluster in {directory}: `penstock cluster up --dir {directory}` starts it, "
            "or say with -b where another is"
        ) from error
