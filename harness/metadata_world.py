"""A controller with registered brokers in a minimal shell: decide, record, apply."""

import random
from typing import TypeVar

from penstock.metadata.commands import RegisterBroker, RegisteredBroker
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.frames import decode_record, encode_record
from penstock.metadata.records import BrokerEndpoint
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.shard import Command

Reply = TypeVar("Reply")

NOW_MS = 1_700_000_000_000


class Dice:
    """Entropy from a seed."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = random.Random(seed)

    def token(self, size_bytes: int) -> bytes:
        return self._random.randbytes(size_bytes)

    def below(self, end: int) -> int:
        return self._random.randrange(end)


class ControllerWorld:
    """A controller whose log is a list of bytes; records are encoded and decoded before they are applied."""

    def __init__(self, settings: BrokerSettings | None = None, brokers: tuple[int, ...] = (1,), seed: int = 0) -> None:
        self.settings = settings or BrokerSettings()
        self.controller = Controller(1, self.settings, Dice(seed))
        self.log: list[bytes] = []
        for broker_id in brokers:
            self.register(broker_id)

    def register(self, broker_id: int, rack: str | None = None, *, is_fenced: bool = False) -> RegisteredBroker:
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)
        return self.ask(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=bytes([broker_id]) * 16,
                epoch=len(self.log),
                listeners=(endpoint,),
                rack=rack,
                log_dirs=(b"d" * 15 + bytes([broker_id]),),
                is_fenced=is_fenced,
            )
        )

    def ask(self, command: Command[Reply]) -> Reply:
        decision = self.controller.decide(command, NOW_MS)
        for record in decision.records:
            self.write(record)
        return decision.reply

    def write(self, record: MetadataRecord) -> None:
        self.log.append(encode_record(record))
        self.controller.apply(decode_record(self.log[-1]))

    def replayed(self) -> Controller:
        """Another controller that has replayed the log."""
        other = Controller(1, self.settings, Dice("another"))
        for data in self.log:
            other.apply(decode_record(data))
        return other
