"""Metrics of the metadata quorum, as seen by this node."""

from collections.abc import Iterator

from penstock.model.ports import Clock
from penstock.raft.roles import Role
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.metrics.collector import Collector
from penstock.server.metrics.page import Kind, Metric, Page, labels
from penstock.server.metrics.window import Window
from penstock.server.quorum.quorum_runner import QuorumRunner

STATE = Metric(
    "kafka_server_raftmetrics_current_state",
    Kind.GAUGE,
    "Always 1; its label says what this node is in the quorum: leader, follower, observer, candidate and so on.",
    ("current_state",),
    "No leader anywhere: a majority of controllers is down or cut off.",
)
LEADER = Metric("kafka_server_raftmetrics_current_leader", Kind.GAUGE, "Who leads, as far as it knows; -1 if nobody.")
EPOCH = Metric(
    "kafka_server_raftmetrics_current_epoch",
    Kind.GAUGE,
    "The epoch of the quorum.",
    advice="It grows with every election: several in an hour are a bad network or an overloaded controller.",
)
VOTE = Metric("kafka_server_raftmetrics_current_vote", Kind.GAUGE, "Whom it voted for in this epoch; -1 for nobody.")
WATERMARK = Metric("kafka_server_raftmetrics_high_watermark", Kind.GAUGE, "The end of what is committed.")
END = Metric(
    "kafka_server_raftmetrics_log_end_offset",
    Kind.GAUGE,
    "The end of the metadata log here.",
    advice="Far behind that of the leader: the node is cut off or too slow.",
)
APPENDED = Metric(
    "kafka_server_raftmetrics_append_records_rate",
    Kind.GAUGE,
    "Records per second that it appended as leader, in about the last half minute.",
)
FETCHED = Metric(
    "kafka_server_raftmetrics_fetch_records_rate",
    Kind.GAUGE,
    "Records per second that it fetched from the leader, in about the last half minute.",
)
VOTERS = Metric("kafka_server_raftmetrics_number_of_voters", Kind.GAUGE, "Voters of the quorum.")
APPLIED = Metric(
    "kafka_server_brokermetadatametrics_last_applied_record_offset",
    Kind.GAUGE,
    "The last record of the metadata log that this node acts on.",
    advice="Far behind the high watermark: the node is overloaded.",
)


class QuorumCollector(Collector):
    """See the module."""

    metrics = (STATE, LEADER, EPOCH, VOTE, WATERMARK, END, APPENDED, FETCHED, VOTERS, APPLIED)

    def __init__(self, quorum: QuorumRunner, controller: ControllerRunner, clock: Clock) -> None:
        self._quorum = quorum
        self._controller = controller
        self._clock = clock
        self._ends = Window(quorum.end_offset, clock.monotonic_ms())

    def collect(self, page: Page) -> Iterator[None]:
        """Fills the page in one piece."""
        raft, end_offset = self._quorum.raft, self._quorum.end_offset
        vote = raft.replica.state.voted_for
        per_second = round(max(0.0, self._ends.per_second(end_offset, self._clock.monotonic_ms())), 3)
        leads = raft.role is Role.LEADER
        page.family(STATE).add(1, labels(current_state=raft.role.value))
        page.family(LEADER).add(raft.leader_id)
        page.family(EPOCH).add(raft.epoch)
        page.family(VOTE).add(-1 if vote is None else vote.node_id)
        page.family(WATERMARK).add(raft.high_watermark)
        page.family(END).add(end_offset)
        page.family(APPENDED).add(per_second if leads else 0.0)
        page.family(FETCHED).add(0.0 if leads else per_second)
        page.family(VOTERS).add(len(raft.voters.ids))
        page.family(APPLIED).add(self._controller.position - 1)
        yield
