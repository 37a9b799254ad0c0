"""Health checks of a cluster, with remedies: a function of the state that the cluster reports."""

from collections.abc import Iterable, Iterator, Sequence

from penstock.cli.cluster.state import ClusterState, lacking
from penstock.cli.cluster.unconfirmed import unconfirmed_findings
from penstock.cli.connection.majority import is_confirmed
from penstock.cli.disk_room import room_finding
from penstock.client.admin.quorum import QuorumDescription, QuorumReplica
from penstock.client.errors import ClientError, Unsupported
from penstock.client.metadata import Partition, TopicPartition
from penstock.model.errors import ErrorCode
from penstock.model.findings import Finding, well, wrong

SILENT_MS_MAX = 5_000
"""A replica of the metadata log fetches at least twice a second."""
NAMES_MAX = 5
LOST = (
    "the logs of these brokers say how far each still reaches; to go on with what is left: "
    "`penstock topic elect TOPIC --unclean`, which loses what its new leader lacks"
)
DAMAGED = (
    "nothing, while another replica leads: the broker sets the damaged log aside and fetches it anew; look after its "
    "disk, and at its log if this stays"
)
DAMAGED_LAST = (
    "start brokers that are down and have these partitions; or restore the file that the broker's log names from a "
    "backup, and restart it; or go on with what other replicas have: `penstock topic elect TOPIC --unclean`, which "
    "loses what its new leader lacks"
)
START = "start its process again and look at its log for why it ended"
Named = tuple[str, Partition]


def health_findings(state: ClusterState, start: str = START) -> list[Finding]:
    """All findings, good ones included; `start` is the advice for a broker that is down."""
    if state.probe is not None and not is_confirmed(state.probe):
        return [*unconfirmed_findings(state, state.probe), *_disks(state)]
    return [
        *_controllers(state),
        *_brokers(state, start),
        *_offline(state, start),
        *_damaged(state),
        *_partitions(state, start),
        _moving(state),
        *_disks(state),
    ]


# --- controllers ------------------------------------------------------------------------------------------------------


def _controllers(state: ClusterState) -> Iterator[Finding]:
    quorum = state.quorum
    if quorum is None or isinstance(quorum, Unsupported):
        yield well("controller", "this cluster does not tell of its controllers")
    elif isinstance(quorum, ClientError):
        text = f"no controller is active, so no topic is made, no leader elected, no broker let in ({quorum})"
        yield wrong("controller", text, "start controllers that are down: more than half of them must run")
    else:
        yield from _quorum(quorum, state)


def _quorum(quorum: QuorumDescription, state: ClusterState) -> Iterator[Finding]:
    failed = () if state.probe is None else [each.node_id for each in state.probe.controllers if each.failure]
    silent = [each for each in quorum.voters if each.node_id in failed or _is_silent(each, quorum)]
    count = len(quorum.voters)
    if not silent:
        yield well(
            "controller", f"controller {quorum.leader_id} leads, and {_all_of(count, 'voter')} keep{_s(count)} up"
        )
    else:
        spare = count - len(silent) - (count // 2 + 1)
        rest = f"{spare} more may fail" if spare > 0 else "if one more fails, nothing can be decided any more"
        names = _numbers("controller", [each.node_id for each in silent])
        text = f"{names} of {count} {_is(silent)} not heard by controller {quorum.leader_id}, which leads: {rest}"
        yield wrong("controller", text, "start what is down; `penstock quorum status` shows how far each is")
    late = [each.node_id for each in quorum.observers if each.node_id in state.brokers and _is_silent(each, quorum)]
    if late:
        text = f"{_numbers('broker', late)} {_is(late)} let in, but did not follow the metadata for {SILENT_MS_MAX} ms"
        yield wrong("controller", text, "look whether it reaches the controllers, and at its log")


def _is_silent(replica: QuorumReplica, quorum: QuorumDescription) -> bool:
    """Measured by the leader's clock: the leader reports its own last fetch as now."""
    now_ms = max(each.last_fetch_ms for each in quorum.voters)
    return replica.node_id != quorum.leader_id and replica.last_fetch_ms < now_ms - SILENT_MS_MAX


# --- brokers ----------------------------------------------------------------------------------------------------------


def _brokers(state: ClusterState, start: str) -> Iterator[Finding]:
    for node_id in state.missing:
        if isinstance(state.log_dirs.get(node_id), list):
            text = f"broker {node_id} runs, but leads nothing: fenced, since its disk is full or it is not ready yet"
            yield wrong("broker", text, "see to its disk, as told below, and look at its log; it comes back by itself")
        elif node_id in state.fenced:
            yield wrong("broker", f"broker {node_id} is down, and fenced", start)
        else:
            yield wrong("broker", f"broker {node_id} is not there, and has replicas", start)
    silent = [each for each in state.brokers if isinstance(state.log_dirs.get(each), ClientError)]
    for node_id in silent:
        place = state.brokers[node_id].address
        text = f"broker {node_id} is let in, but does not answer at {place}: {state.log_dirs[node_id]}"
        yield wrong("broker", text, "if that goes on, restart it; or let advertised.listeners lead here")
    if not state.missing and not silent:
        count = len(state.brokers)
        yield well("broker", f"{_all_of(count, 'broker')} {'are' if count != 1 else 'is'} there")


def _disks(state: ClusterState) -> Iterator[Finding]:
    for node_id, said in state.log_dirs.items():
        for each in () if isinstance(said, ClientError) else said:
            place = f"{each.path} of broker {node_id}"
            if each.error is not ErrorCode.NONE:
                fix = "look at the broker's log for the error, mend the disk, and restart the broker"
                yield wrong("disk", f"{place} is offline: {each.error.name}", fix)
            elif each.usable_bytes >= 0:
                yield room_finding("disk", each.usable_bytes, each.total_bytes, place)


# --- partitions -------------------------------------------------------------------------------------------------------


def _is_led(partition: Partition, state: ClusterState) -> bool:
    return partition.leader in state.brokers


def _offline(state: ClusterState, start: str) -> Iterator[Finding]:
    doubtful = _doubtful(state)
    unled = [named for named in state.partitions() if not _is_led(named[1], state)]
    lost = [named for named in unled if TopicPartition(named[0], named[1].index) in doubtful]
    damaged = [named for named in unled if named not in lost and _damaged_on(named[1], state)]
    offline = [named for named in unled if named not in lost and named not in damaged]
    if lost:
        had_all = sorted({each for who in doubtful.values() for each in who})
        text = (
            f"{_count(lost, 'partition')} can be neither written nor read, and may have lost acknowledged records: "
            f"{_names(lost)}; {_numbers('broker', had_all)} had them all, and came back after a power cut "
            "(durability=replicated), or with damage"
        )
        yield wrong("lost", text, LOST)
    if not offline:
        if not unled:
            yield well("offline", "every partition has a leader")
        return
    down = sorted({each for _, part in offline for each in part.replicas if each not in state.brokers})
    fix = (
        f"{_numbers('broker', down)} {'have' if len(down) > 1 else 'has'} them: {start}"
        if down
        else ("the brokers that have them are there: look at their logs for why none of them leads")
    )
    last = "; only if their data is gone: `penstock topic elect TOPIC --unclean --force`, which loses records"
    text = f"{_count(offline, 'partition')} can be neither written nor read: {_names(offline)}"
    yield wrong("offline", text, fix + last)


def _damaged_on(partition: Partition, state: ClusterState) -> list[int]:
    """Brokers that are online while their replica of the partition is offline."""
    return [each for each in partition.offline if each in state.brokers]


def _damaged(state: ClusterState) -> Iterator[Finding]:
    doubtful = _doubtful(state)
    by_broker: dict[int, list[Named]] = {}
    last: dict[int, list[Named]] = {}
    for topic, part in state.partitions():
        for node_id in _damaged_on(part, state):
            is_last = not _is_led(part, state) and TopicPartition(topic, part.index) not in doubtful
            (last if is_last else by_broker).setdefault(node_id, []).append((topic, part))
    for node_id, found in sorted(by_broker.items()):
        text = (
            f"the log{'s' * (len(found) != 1)} of {_count(found, 'partition')} on broker {node_id} "
            f"{_is(found)} damaged: {_names(found)}"
        )
        yield wrong("damaged", text, DAMAGED)
    for node_id, found in sorted(last.items()):
        text = (
            f"{_count(found, 'partition')} can be neither written nor read: {_names(found)}; the only replica there "
            f"that has every acknowledged record is on broker {node_id}, is damaged, and is kept"
        )
        yield wrong("damaged", text, DAMAGED_LAST)


def _doubtful(state: ClusterState) -> dict[TopicPartition, tuple[int, ...]]:
    """Partitions of which no replica is known to be complete, with the brokers that last had a complete one."""
    unled = () if isinstance(state.unled, ClientError) else state.unled
    return {each.partition: each.had_all for each in unled if each.had_all and not each.has_all}


def _partitions(state: ClusterState, start: str) -> Iterator[Finding]:
    adding = state.adding()
    led = [(topic, part) for topic, part in state.partitions() if _is_led(part, state)]
    below = [
        named for named in led if len(named[1].isr) < min(state.in_sync_min.get(named[0], 1), len(named[1].replicas))
    ]
    if below:
        text = (
            f"{_count(below, 'partition')} refuse{_s(len(below))} acks=all, with fewer in sync than min.insync.replicas"
        )
        yield wrong(
            "in-sync", f"{text}: {_names(below)}", "bring back who is missing, as told here; do not lower the setting"
        )
    by_broker: dict[int, list[Named]] = {}
    for topic, part in led:
        for node_id in lacking(part, adding.get(TopicPartition(topic, part.index), ())):
            by_broker.setdefault(node_id, []).append((topic, part))
    for node_id, behind in sorted(by_broker.items()):
        text = f"{_count(behind, 'partition')} {_is(behind)} behind on broker {node_id}: {_names(behind)}"
        slow = "it is there, and catches up by itself; if that takes long, look at its log, its disk and its network"
        yield wrong("replicas", text, start if node_id not in state.brokers else slow)
    if not below and not by_broker:
        yield well("replicas", "every replica is in sync")


def _moving(state: ClusterState) -> Finding:
    if isinstance(state.moving, ClientError):
        text = f"whether partitions move is not known: {state.moving}"
        if isinstance(state.moving, Unsupported) or isinstance(state.quorum, ClientError):
            return well("moves", text)
        return wrong(
            "moves", text, "look again in a moment; if that stays so, look at the log of the active controller"
        )
    if state.moving:
        count = len(state.moving)
        return well(
            "moves", f"{_count(state.moving, 'partition')} move{_s(count)}; `penstock reassign status` tells how far"
        )
    return well("moves", "no partition moves")


# --- wording ----------------------------------------------------------------------------------------------------------


def _names(partitions: Iterable[Named]) -> str:
    names = [f"{topic}[{part.index}]" for topic, part in partitions]
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def _numbers(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'s' * (len(things) != 1)}"


def _all_of(count: int, noun: str) -> str:
    return f"all {count} {noun}s" if count != 1 else f"1 {noun}"


def _is(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _s(count: int) -> str:
    """The ending of a verb."""
    return "s" if count == 1 else ""
