"""The sandbox that has the addresses of a cluster, if it is one: a command that reaches nobody names what starts it."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.client.bootstrap import FoundCluster

HOME = Path(".penstock/cluster")
FILE = "cluster.json"


class Sandbox(NamedTuple):
    """A cluster of processes on this machine, with its directory."""

    path: Path
    bootstrap: str

    @property
    def start(self) -> str:
        """The command that starts what is missing of it."""
        return "penstock sandbox up" + ("" if self.path == HOME else f" --dir {self.path}")


def sandbox_of(found: "FoundCluster") -> Sandbox | None:
    """The sandbox that has these addresses, if --dir or the rule of the nearest .penstock has found one."""
    from penstock.client.bootstrap import read_endpoint

    for place in () if found.folder is None else (found.folder / HOME, found.folder):
        if (place / FILE).exists() and read_endpoint(place) == found.bootstrap:
            return Sandbox(HOME if place.absolute() == Path.cwd() / HOME else place, found.bootstrap)
    return None
