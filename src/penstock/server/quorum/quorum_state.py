"""The file `quorum-state`: epoch, vote and leader, on stable storage before they are sent to a peer.

Each of its two copies is padded to the length of a sector. If there is no space for a new file, not even from the
reserve, the copies are overwritten one after the other, so that one is always whole. A full disk therefore does not
keep a node from starting.
"""

from typing import Any, Final

from penstock.log import checked
from penstock.log.space import Reserve
from penstock.model.errors import DiskFull
from penstock.model.ports import Disk
from penstock.raft.replicas import ReplicaKey
from penstock.raft.roles import QuorumState

QUORUM_STATE: Final = "quorum-state"
_VERSION: Final = 1
_COPY_BYTES: Final = 512


def load_state(disk: Disk) -> QuorumState:
    """Reads the file; returns the initial state if there is none. Raises Damaged if neither copy is whole."""
    if not disk.exists(QUORUM_STATE):
        return QuorumState()
    said = checked.read(disk, QUORUM_STATE, QUORUM_STATE, _VERSION).value
    voted_for = said["voted_for"]
    return QuorumState(
        said["epoch"],
        said["leader_id"],
        None if voted_for is None else ReplicaKey(voted_for["node_id"], bytes.fromhex(voted_for["directory_id"])),
    )


async def store_state(disk: Disk, state: QuorumState, reserve: Reserve | None = None) -> None:
    """Writes the state; returns when it is on stable storage."""
    value = _padded(state)
    try:
        await checked.replace(disk, QUORUM_STATE, QUORUM_STATE, _VERSION, value, reserve)
    except DiskFull:
        if not await _write_over(disk, checked.encode(QUORUM_STATE, _VERSION, value)):
            raise


def _padded(state: QuorumState) -> dict[str, Any]:
    voted_for = state.voted_for
    value: dict[str, Any] = {
        "epoch": state.epoch,
        "leader_id": state.leader_id,
        "voted_for": None
        if voted_for is None
        else {"node_id": voted_for.node_id, "directory_id": voted_for.directory_id.hex()},
        "padding": "",
    }
    while (missing := _COPY_BYTES - len(checked.encode(QUORUM_STATE, _VERSION, value)) // 2) > 0:
        value["padding"] += " " * missing  # the length field may grow by a digit, and then one blank less is needed
    if missing < 0:
        value["padding"] = value["padding"][:missing]
    return value


async def _write_over(disk: Disk, data: bytes) -> bool:
    """Overwrites a file of the same length, first copy first (readers prefer it); returns False if there is none."""
    if not disk.exists(QUORUM_STATE):
        return False
    file = disk.open(QUORUM_STATE)
    try:
        if file.size() != len(data):
            return False
        for position in (0, _COPY_BYTES):
            file.write(position, data[position : position + _COPY_BYTES])
            await file.sync()
    finally:
        file.close()
    return True
