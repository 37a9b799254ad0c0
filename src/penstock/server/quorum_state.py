"""The file `quorum-state`: epoch, vote and leader, on stable storage before anybody hears of them."""

from typing import Final

from penstock.log import checked
from penstock.model.ports import Disk
from penstock.raft.replicas import ReplicaKey
from penstock.raft.roles import QuorumState

QUORUM_STATE: Final = "quorum-state"
_VERSION: Final = 1


def load_state(disk: Disk) -> QuorumState:
    """What the file says; the very beginning where there is none. Damaged when neither copy in it is whole."""
    if not disk.exists(QUORUM_STATE):
        return QuorumState()
    said = checked.read(disk, QUORUM_STATE, QUORUM_STATE, _VERSION).value
    voted_for = said["voted_for"]
    return QuorumState(
        said["epoch"],
        said["leader_id"],
        None if voted_for is None else ReplicaKey(voted_for["node_id"], bytes.fromhex(voted_for["directory_id"])),
    )


async def store_state(disk: Disk, state: QuorumState) -> None:
    """Returns when it is on stable storage."""
    voted_for = state.voted_for
    value = {
        "epoch": state.epoch,
        "leader_id": state.leader_id,
        "voted_for": None
        if voted_for is None
        else {"node_id": voted_for.node_id, "directory_id": voted_for.directory_id.hex()},
    }
    await checked.replace(disk, QUORUM_STATE, QUORUM_STATE, _VERSION, value)
