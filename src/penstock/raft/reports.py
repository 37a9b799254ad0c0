"""Reports of a metadata quorum replica to operators."""

from typing import Final

from penstock.model.report import Kind, Level

LEADER_SILENT: Final = Kind(
    "quorum-leader-silent",
    "Node {leader}, which leads the metadata quorum in epoch {epoch}, was not heard for {silent_ms} ms; an election is "
    "prepared.",
    "The leader is down, cut off or overloaded. If it comes again and again, look at that node and at the network.",
)
CANDIDATE: Final = Kind(
    "quorum-candidate",
    "Stands for election in epoch {epoch} of the metadata quorum, with the log up to offset {end_offset}.",
    "A majority of the voters would elect this node. One election follows the loss of a leader; many show that voters "
    "do not reach each other.",
)
VOTED: Final = Kind(
    "quorum-vote",
    "Votes for node {candidate} in epoch {epoch} of the metadata quorum.",
    "Part of an election.",
)
LEADER: Final = Kind(
    "quorum-leader",
    "Leads the metadata quorum in epoch {epoch}, from offset {start_offset} on; elected by {voters}.",
    "This node is the controller as soon as it has applied the log.",
)
FOLLOWS: Final = Kind(
    "quorum-follows",
    "Follows node {leader}, which leads the metadata quorum in epoch {epoch}; before: {before}.",
    "Part of an election.",
)
RESIGNED: Final = Kind(
    "quorum-resigned",
    "Leads the metadata quorum no longer, in epoch {epoch}: {why}.",
    "The voters elect another leader.",
)
MAJORITY_LOST: Final = Kind(
    "quorum-majority-lost",
    "Leads the metadata quorum no longer, in epoch {epoch}: a majority of the voters was not heard for {silent_ms} ms.",
    "This node is cut off from the other voters, or a majority of them is down. Nothing can be decided until a "
    "majority is back.",
    Level.WARNING,
)
NO_MAJORITY: Final = Kind(
    "quorum-no-majority",
    "Nobody can be elected to lead the metadata quorum: {answering} of {voters} voters answer, this node included.",
    "A majority of the voters is down, or this node is cut off from them. Until a majority is back, partitions whose "
    "leader is alive are read and written, and nothing can be decided: no topic is created, no leader elected.",
    Level.WARNING,
)
LEADER_HEARD: Final = Kind(
    "quorum-leader-heard",
    "Hears node {leader}, which leads the metadata quorum in epoch {epoch}, again.",
    "The leader was silent for a while, and was not replaced.",
)
LOG_CUT: Final = Kind(
    "quorum-log-cut",
    "Cuts the metadata log at offset {end_offset} (it ended at {was}): the leader of epoch {epoch} has it otherwise.",
    "What is cut was never committed.",
)
SNAPSHOT_LOADED: Final = Kind(
    "quorum-snapshot-loaded",
    "Begins anew with the snapshot of the metadata log up to offset {end_offset}, which node {leader} has sent.",
    "This node was further behind than the leader's log goes back.",
)
VOTERS: Final = Kind(
    "quorum-voters",
    "The voters of the metadata quorum are {voters}; before: {before}.",
    "A voter was added, removed or updated.",
)

KINDS: Final = (
    LEADER_SILENT,
    CANDIDATE,
    VOTED,
    LEADER,
    FOLLOWS,
    RESIGNED,
    MAJORITY_LOST,
    NO_MAJORITY,
    LEADER_HEARD,
    LOG_CUT,
    SNAPSHOT_LOADED,
    VOTERS,
)
