"""All limits of the broker, each named with its unit. A limit is a bound that is enforced, not a hint."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the memory and work that a peer can cause. Defaults are Kafka's, except where noted."""

    frame_bytes_max: int = 100 * MIB
    """A request frame (Kafka: socket.request.max.bytes)."""

    frame_before_login_bytes_max: int = 64 * 1024
    """A request frame of a connection on probation (Kafka, before login: 512 KiB)."""

    frame_first_bytes: int = 4 * 1024
    """First receive buffer of a connection; freed when it is drained."""

    frame_growth_bytes: int = 64 * 1024
    """Step by which a frame's buffer grows as bytes arrive; the declared length is not trusted."""

    frame_lent_bytes: int = 256 * 1024
    """Size of the buffers that connections share while bytes keep arriving; an idle connection holds none."""

    frame_arrival_ms: int = 30_000
    """Time in which a frame must arrive completely; waiting for space in the input pool does not count."""

    request_bytes_max: int = 16 * MIB
    """A frame of any request but Produce; a larger one is refused when its first bytes have arrived."""

    request_inline_bytes_max: int = 64 * 1024
    """A request that may be decoded on the event loop, if it has few elements; others are decoded by workers."""

    request_inline_elements_max: int = 2_000
    """Elements of such a request if it is decoded in the turn of long-running work."""

    request_prompt_elements_max: int = 500
    """Elements of such a request if it is decoded immediately."""

    request_small_bytes_max: int = 4 * 1024
    """A request that is decoded on the event loop without counting its elements."""

    request_elements_max: int = 50_000
    """Elements of all arrays of a request together, plus its tagged fields."""

    request_memory_bytes_max: int = 6 * MIB
    """Memory of a decoded request, beyond the bytes of its frame."""

    produce_partitions_max: int = 10_000
    """Partitions of one Produce request."""

    large_requests_max: int = 16
    """Requests decoded by workers and not yet answered, over all connections."""

    response_inline_elements_max: int = 500
    """Elements of a response that is encoded on the event loop; larger ones are encoded by workers."""

    response_bytes_max: int = 100 * MIB
    """A response frame. The connection is closed if the response would be larger."""

    frame_large_bytes: int = 2 * MIB
    """A larger frame is received into memory of the pool for large frames."""

    input_pool_bytes_max: int = 128 * MIB
    """Unparsed input and in-flight requests of all connections together (Kafka: queued.max.request.bytes, off)."""

    large_input_pool_bytes_max: int = 128 * MIB
    """The same for large frames."""

    requests_under_way_max: int = 16
    """In-flight requests of one connection; at this number its socket is not read."""

    connections_max: int = 10_000
    """Connections of one listener (Kafka: max.connections, off)."""

    connections_per_host_max: int = 10_000
    """Connections from one address (Kafka: max.connections.per.ip, off)."""

    peer_connections_max: int = 1_000
    """Connections of one listener from nodes of this cluster, in addition to those of clients."""

    probation_connections_max: int = 64
    """Connections beyond the client limits, not yet identified as a node's; the oldest is closed first."""

    probation_ms: int = 2_000
    """Time in which such a connection must be identified as a node's."""

    connection_rate_max: int = 1_000
    """New connections per second, both average and burst (Kafka: max.connection.creation.rate, off)."""

    connection_idle_ms: int = 600_000
    """A connection without activity for this long is closed (Kafka: connections.max.idle.ms)."""

    http_connections_max: int = 16
    """Connections of the metrics listener; each carries one request."""

    http_head_bytes_max: int = 8 * 1024
    """Head of a request to the metrics listener; it has no body."""

    http_head_ms: int = 5_000
    """Time in which the head must arrive completely."""

    http_answer_ms: int = 30_000
    """Time in which the response must be produced and read."""

    batch_bytes_max: int = MIB + 12
    """A record batch as it is stored (Kafka: max.message.bytes)."""

    batch_decompressed_bytes_max: int = 10 * (MIB + 12)
    """Decompressed size of one batch, enforced during decompression."""

    batch_opened_records_max: int = 100_000
    """Records of a batch whose records are parsed; for other batches the bound of the header applies."""


DEFAULT_LIMITS = Limits()
