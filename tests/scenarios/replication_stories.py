"""Scenarios of replication: the transcripts `replication/*.txt` hold commands and the events that follow.

A line that begins with ">" is a command, one with "#" a remark; the others are messages and actions of brokers and
their controller, with the second. A message takes 1 ms, a sync 0.5 ms; a follower that is behind for 2 s leaves the
ISR, a broker that is silent for 3 s is fenced. There is one partition, 0, whose first replica is broker 1. Records are
[epoch value]. `python -m tests.scenarios.replication_stories` writes all transcripts again; then read the difference.
"""

import sys
from pathlib import Path
from typing import Final

from penstock.metadata.cluster_commands import AlterReassignments, ElectLeaders, PartitionRef, Reassignment
from penstock.replication.ports import Key
from tests.scenarios.transcripts import Teller, retold, write_anew
from tests.simulation.kit.invariants import broken
from tests.simulation.replication_core.controller import TOPIC
from tests.simulation.replication_core.options import CALM
from tests.simulation.replication_core.world import Broker, World

FOLDER: Final = Path(__file__).parent / "replication"
PATIENCE_MS: Final = 20_000.0


class Story(Teller):
    """Carries out commands in a world and records the events."""

    def __init__(self, brokers: int = 3, in_sync_min: int = 2, durability: str = "replicated") -> None:
        super().__init__()
        self._is_quiet = True
        options = CALM._replace(
            brokers=brokers, factor=brokers, in_sync_min=in_sync_min, is_fsync=durability == "fsync"
        )
        self.world = World(0, options, story=self._take_down)
        self.world.is_calm = True
        self.world.quorum.elect()
        for broker in self.world.brokers.values():
            broker.start()
        self.world.run(2_000.0)
        self.world.quorum.create_topic(tuple(self.world.brokers))
        self.world.run(2_500.0)
        self._is_quiet = False

    @property
    def key(self) -> Key:
        return next(iter(self.world.partitions()))

    def broker(self, broker_id: str) -> Broker:
        return self.world.brokers[int(broker_id)]

    # --- commands -------------------------------------------------------------------------------------------------

    def do_start(self, *broker_ids: str) -> None:
        for broker_id in broker_ids:
            self.broker(broker_id).start()

    def do_kill(self, *broker_ids: str) -> None:
        for broker_id in broker_ids:
            self.broker(broker_id).die(loses=False)

    def do_power(self, broker_id: str, end_offset: str) -> None:
        """`power 1 5`: broker 1 loses power, and its records from offset 5 on."""
        broker = self.broker(broker_id)
        log = broker.disk.logs[self.key]
        log.cut(int(end_offset))
        log.synced_end = log.written_end
        broker.die(loses=True)

    def do_pause(self, broker_id: str) -> None:
        self.broker(broker_id).pause()

    def do_resume(self, broker_id: str) -> None:
        self.broker(broker_id).resume()

    def do_cut(self, *links: str) -> None:
        """`1>2` stops messages from 1 to 2; `1-2` stops both directions. The controller is 0."""
        for link in links:
            one, sign, other = link[0], link[1], link[2]
            self.world.cut_links[int(one), int(other)] = 1
            if sign == "-":
                self.world.cut_links[int(other), int(one)] = 1

    def do_heal(self) -> None:
        self.world.cut_links.clear()

    def do_stale(self, broker_id: str) -> None:
        """The metadata log no longer reaches a broker."""
        self.broker(broker_id).is_stale = True

    def do_fresh(self, broker_id: str) -> None:
        broker = self.broker(broker_id)
        broker.is_stale = False
        broker.learn(self.world.quorum.log.committed)

    def do_learn(self, broker_id: str, epoch: str) -> None:
        """`learn 3 1`: the metadata log reaches broker 3 up to where leader epoch 1 begins."""
        broker, log = self.broker(broker_id), self.world.quorum.log
        topic_id, number = self.key
        for at in range(broker.metadata_at + 1, log.committed + 1):
            topic = log.batches[at][1].topic_by_id(topic_id)
            if topic is not None and topic.partitions[number].leader_epoch == int(epoch):
                broker.learn_now(at)
                return
        raise AssertionError(f"there is no epoch {epoch} that {broker} has not learned of")

    def do_produce(self, broker_id: str, *values: str) -> None:
        for value in values:
            self.broker(broker_id).produce(self.key, int(value))

    def do_delete(self, broker_id: str, start_offset: str) -> None:
        self.broker(broker_id).disk.logs[self.key].trim(int(start_offset))

    def do_delete_records(self, broker_id: str, offset: str, timeout_ms: str = "1000") -> None:
        """`delete_records 1 5`: a client asks broker 1 to delete the records before offset 5."""
        self.broker(broker_id).delete_records(self.key, int(offset), float(timeout_ms))

    def do_ask(self, broker_id: str) -> None:
        self.broker(broker_id).ask_for_end(self.key)

    def do_elect(self) -> None:
        """Leadership returns to the first replica."""
        self.world.quorum.decide(ElectLeaders((PartitionRef(TOPIC, 0),)), lambda _: None)

    def do_move(self, *broker_ids: str) -> None:
        target = Reassignment(PartitionRef(TOPIC, 0), tuple(map(int, broker_ids)))
        self.world.quorum.decide(AlterReassignments((target,)), lambda _: None)

    def do_failover(self) -> None:
        self.world.quorum.elect()

    def do_run(self, duration_ms: str) -> None:
        self.world.run(self.world.time_ms + float(duration_ms))

    def do_until(self, *what: str) -> None:
        """`until 2 leads`, `until 2 has committed 5`, `until 2 has 5`, `until 1 proposes`, `until in sync 1 2`."""

        def has_happened() -> bool:
            if what[0] == "in":
                isr = self.world.partitions()[self.key].isr
                return sorted(isr) == sorted(map(int, what[2:]))
            broker = self.broker(what[0])
            if what[1] == "proposes":
                leader = None if broker.replicas is None else broker.replicas.leader(self.key)
                return leader is not None and leader.proposal is not None
            if what[1] == "leads":
                return broker.replicas is not None and broker.replicas.leader(self.key) is not None
            log = broker.disk.logs[self.key]
            return (log.high_watermark if what[2] == "committed" else log.written_end) >= int(what[-1])

        self.world.run(self.world.time_ms + PATIENCE_MS, stop=has_happened)
        if not has_happened():
            broken("Convergence", f"it never happened: {' '.join(what)}")

    def do_show(self) -> None:
        for broker in self.world.brokers.values():
            self.lines.append(f"    {broker}: {portrait(broker, self.key)}")


def portrait(broker: Broker, key: Key) -> str:
    log = broker.disk.logs[key]
    start = f"from {log.start_offset}: " if log.start_offset else ""
    entries = start + " ".join(f"[{entry.epoch} {entry.value}]" for entry in log.entries)
    replica = None if broker.replicas is None else broker.replicas.partitions.get(key)
    role = "down"
    if replica is not None and replica.leader is not None:
        isr = " ".join(map(str, replica.leader.isr))
        role = f"leads epoch {replica.leader.epoch}, in sync {isr}, committed {log.high_watermark}"
    elif replica is not None and replica.following is not None:
        role = f"follows {replica.following.source} in epoch {replica.following.epoch}, committed {log.high_watermark}"
    elif broker.is_up:
        role = "follows nobody"
    return f"{role}, log {entries or 'empty'}"


def retell(text: str) -> str:
    """The transcript of a text's commands with the present code: `cluster`, brokers, minimum ISR, durability."""
    return retold(text, lambda brokers, in_sync_min, durability: Story(int(brokers), int(in_sync_min), durability))


def commands_of(name: str) -> str:
    """The commands of a transcript."""
    text = (FOLDER / name).read_text()
    return "\n".join(line for line in text.splitlines() if line.startswith(">"))


if __name__ == "__main__":
    sys.exit(write_anew(FOLDER, retell))
