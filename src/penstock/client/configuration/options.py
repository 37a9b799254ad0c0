"""The options that calls pass on, by name and type; the constructors that take them give their defaults."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from penstock.client.connection.login import Credentials
from penstock.client.connection.sasl import Mechanism
from penstock.client.consumer.consumer import OutOfRangeName, Start
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.groups.membership import GroupSettings
from penstock.client.ports import ClientPorts
from penstock.client.producer.partitioner import Spread
from penstock.records.compression import Codec

if TYPE_CHECKING:
    from ssl import SSLContext

Bootstrap = str | Sequence[str]
"""One address, several separated by commas, or a list of them."""
Sasl = Credentials | tuple[Mechanism, str, str]


class ProducerOptions(TypedDict, total=False):
    """Keyword arguments of `client.producer`, and of the producer behind `publish`."""

    acks: int | Literal["all"]
    """Whose acknowledgement a record needs: of all in-sync replicas, of the leader (1), or of nobody (0)."""
    is_idempotent: bool | None
    """Whether a record is stored once even if it is sent again; by default it is with acks="all"."""
    codec: Codec
    """Compression of batches."""
    level: int | None
    """Level of the compression; by default the codec's own."""
    linger_ms: int
    """How long a batch that is not full waits for more records."""
    batch_bytes: int
    """Size of a full batch, before compression."""
    request_bytes_max: int
    """Size of a request with batches of several partitions."""
    buffer_bytes_max: int
    """Limit of records that are not delivered yet; a caller that exceeds it waits."""
    block_ms_max: int | None
    """How long a caller waits for room in the buffer, and for a topic; by default `timeout_ms` of the client."""
    delivery_timeout_ms: int
    """How long a record may take before it is given up with DeliveryTimedOut."""
    creates_topics: bool
    """Whether the broker may create a topic that is missing, if its settings allow it."""
    spread: Spread | Literal["sticky", "round-robin"]
    """How records without a key are spread: a batch to a partition, then another, or in turn."""


class ConsumerOptions(TypedDict, total=False):
    """Keyword arguments of `client.consumer`."""

    out_of_range: OutOfRangeName
    """What to do about an offset that is not in the log: raise OutOfRange, or go on at one end of the log."""
    checks_crc: bool
    """Whether the checksum of every batch is compared."""


class GroupConsumerOptions(TypedDict, total=False):
    """Keyword arguments of `client.group_consumer`."""

    start: Start
    """Where partitions begin of which nothing is committed; not an offset."""
    out_of_range: OutOfRangeName
    """What to do about a committed offset that is not in the log."""
    instance_id: str | None
    """Name of a static member, which keeps its partitions across a restart."""
    commits: bool
    """Whether read offsets are committed automatically."""
    settings: GroupSettings | None
    """Time limits of the membership."""
    fetching: FetchSettings | None
    """Sizes and time limits of fetches."""


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of `Client` besides `config`; they win over it."""

    client_id: str | None
    """The name that brokers see; penstock by default."""
    sasl: Sasl | None
    """The login."""
    tls: "SSLContext | None"
    """Turns on encryption, and defines the trusted certificates."""
    ports: ClientPorts | None
    """Replace network, clock and entropy of this machine, in a simulation for example."""
    timeout_ms: int | None
    """Limit of a call, all attempts together; 60,000 by default."""
    connect_timeout_ms: int | None
    """Limit of one connection, with TLS and login; 5,000 by default."""
    first_contact_ms: int | None
    """Limit of the time until a first broker answers at all; `connect_timeout_ms` by default."""
    request_timeout_ms: int | None
    """Limit of one response; 30,000 by default."""
    producer: ProducerOptions | None
    """Options of the producer behind `publish`."""
