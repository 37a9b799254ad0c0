"""Every limit of the house, in one place, unit last. A limit is a bound that is enforced, not a hint."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a peer may make us hold or do. Defaults are Kafka's where Kafka has one."""

    frame_bytes_max: int = 100 * MIB
    """A request frame after login (Kafka: socket.request.max.bytes)."""

    frame_before_login_bytes_max: int = 64 * 1024
    """A request frame before login (Kafka: 512 KiB)."""

    frame_first_bytes: int = 4 * 1024
    """What a connection with nothing under way receives into; freed again when it is drained."""

    frame_growth_bytes: int = 64 * 1024
    """A declared frame length is only a promise; the buffer grows by this much as bytes really arrive."""

    frame_lent_bytes: int = 256 * 1024
    """The buffers that connections lend each other while bytes keep coming; an idle connection holds none."""

    frame_arrival_ms: int = 30_000
    """A frame that has begun must be whole within this time; what is spent waiting for room does not count."""

    request_bytes_max: int = 16 * MIB
    """A frame of any request but Produce; refused when its first bytes have arrived."""

    request_inline_bytes_max: int = 64 * 1024
    """A request that may be decoded on the event loop, if it has few elements; others are decoded by workers."""

    request_inline_elements_max: int = 2_000
    """How many those may be, if they are decoded when long work has its turn."""

    request_prompt_elements_max: int = 500
    """How many those may be that are decoded at once."""

    request_small_bytes_max: int = 4 * 1024
    """A request that is decoded on the event loop without counting its elements."""

    request_elements_max: int = 50_000
    """Elements of all arrays of a request together, and its tagged fields."""

    request_memory_bytes_max: int = 6 * MIB
    """What a decoded request takes of memory, beyond the bytes of its frame."""

    produce_partitions_max: int = 10_000
    """Partitions of one Produce request."""

    large_requests_max: int = 16
    """Requests that workers decoded and that are not answered yet, of all connections together."""

    response_inline_elements_max: int = 500
    """Elements of a response that is encoded on the event loop; larger ones are encoded by workers."""

    response_bytes_max: int = 100 * MIB
    """A response frame. A request whose answer would be larger ends the connection."""

    frame_large_bytes: int = 2 * MIB
    """A larger frame takes its room from the pool for large ones."""

    input_pool_bytes_max: int = 128 * MIB
    """Unparsed input and requests under way, of all connections together (Kafka: queued.max.request.bytes, off)."""

    large_input_pool_bytes_max: int = 128 * MIB
    """The same for large frames."""

    requests_under_way_max: int = 16
    """Requests of one connection that may be under way; then its socket is not read."""

    connections_max: int = 10_000
    """Connections of one listener (Kafka: max.connections, off)."""

    connections_per_host_max: int = 10_000
    """Connections from one address (Kafka: max.connections.per.ip, off)."""

    peer_connections_max: int = 1_000
    """Connections of one listener by nodes of this cluster, beside those of clients."""

    probation_connections_max: int = 64
    """Connections beyond the limits of clients that have yet to show that they are a node's; the oldest goes first."""

    probation_ms: int = 2_000
    """They have to show it within this time."""

    connection_rate_max: int = 1_000
    """New connections in a second, on average and at once (Kafka: max.connection.creation.rate, off)."""

    connection_idle_ms: int = 600_000
    """A connection on which nothing happens for this long is closed (Kafka: connections.max.idle.ms)."""

    http_connections_max: int = 16
    """Connections of the listener for metrics; each has one request."""

    http_head_bytes_max: int = 8 * 1024
    """The head of a request there; it has no body."""

    http_head_ms: int = 5_000
    """It must be whole within this time."""

    http_answer_ms: int = 30_000
    """Its answer must be made and read within this time."""

    batch_bytes_max: int = MIB + 12
    """A record batch as it is stored (Kafka: max.message.bytes)."""

    batch_decompressed_bytes_max: int = 10 * (MIB + 12)
    """What one batch may decompress to, enforced while it streams."""

    batch_opened_records_max: int = 100_000
    """Records of a batch whose records are opened; without that, the header's bound holds."""


DEFAULT_LIMITS = Limits()
