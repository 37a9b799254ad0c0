"""Network settings of a broker: listeners, connections, requests, TLS and SASL."""

from penstock.metadata.settings.setting import INT_MAX, Importance, Kind, Setting, Update, at_least, one_of

HIGH = Importance.HIGH
LOW = Importance.LOW
PER_BROKER = Update.PER_BROKER
CLUSTER_WIDE = Update.CLUSTER_WIDE

SETTINGS = (
    Setting(
        "listeners",
        Kind.LIST,
        "PLAINTEXT://:9092",
        "Where the broker listens: name://host:port, separated by commas. An empty host means every interface.",
        HIGH,
        update=PER_BROKER,
    ),
    Setting(
        "advertised.listeners",
        Kind.LIST,
        None,
        "Where clients are told to connect; unset, the listeners themselves.",
        HIGH,
    ),
    Setting(
        "listener.security.protocol.map",
        Kind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener's name stands for.",
        LOW,
        update=PER_BROKER,
    ),
    Setting("inter.broker.listener.name", Kind.STRING, None, "The listener through which brokers talk to each other."),
    Setting(
        "controller.listener.names", Kind.LIST, None, "The listeners of the controller, separated by commas.", HIGH
    ),
    Setting(
        "security.inter.broker.protocol",
        Kind.STRING,
        "PLAINTEXT",
        "The security protocol between brokers where no listener name is given.",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Setting(
        "socket.request.max.bytes",
        Kind.INT,
        "104857600",
        "The largest request that is read. A connection that announces more is closed.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "socket.send.buffer.bytes", Kind.INT, "102400", "The send buffer of a socket; -1 leaves it to the system.", HIGH
    ),
    Setting(
        "socket.receive.buffer.bytes",
        Kind.INT,
        "102400",
        "The receive buffer of a socket; -1 leaves it to the system.",
        HIGH,
    ),
    Setting(
        "socket.listen.backlog.size", Kind.INT, "50", "Connections that may wait to be accepted.", check=at_least(1)
    ),
    Setting("connections.max.idle.ms", Kind.LONG, "600000", "A connection without traffic is closed after this time."),
    Setting(
        "connections.max.reauth.ms",
        Kind.LONG,
        "0",
        "How long a SASL session lasts before the client must log in again; 0 for ever.",
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        "100",
        "How long the answer to a failed login is held back.",
        LOW,
        check=at_least(0),
    ),
    Setting(
        "max.connections",
        Kind.INT,
        str(INT_MAX),
        "Connections that the broker holds at once.",
        check=at_least(0),
        update=CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip",
        Kind.INT,
        str(INT_MAX),
        "Connections that one address may hold at once.",
        check=at_least(0),
        update=CLUSTER_WIDE,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        Kind.STRING,
        "",
        "Exceptions from max.connections.per.ip: host:count, separated by commas.",
        update=CLUSTER_WIDE,
    ),
    Setting(
        "max.connection.creation.rate",
        Kind.INT,
        str(INT_MAX),
        "New connections per second.",
        check=at_least(0),
        update=CLUSTER_WIDE,
    ),
    Setting(
        "queued.max.requests",
        Kind.INT,
        "500",
        "Requests that may wait before connections are read no further.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        "-1",
        "Bytes of requests that may wait before connections are read no further; -1 for no limit.",
    ),
    Setting(
        "num.network.threads",
        Kind.INT,
        "3",
        "Threads for the network in Kafka. Here one event loop serves all connections.",
        HIGH,
        check=at_least(1),
        update=CLUSTER_WIDE,
    ),
    Setting(
        "num.io.threads",
        Kind.INT,
        "8",
        "Threads for requests in Kafka. Here one event loop serves all requests.",
        HIGH,
        check=at_least(1),
        update=CLUSTER_WIDE,
    ),
    Setting(
        "background.threads",
        Kind.INT,
        "10",
        "Threads for upkeep in Kafka. Here it sizes the pool of workers.",
        HIGH,
        check=at_least(1),
        update=CLUSTER_WIDE,
    ),
    Setting("request.timeout.ms", Kind.INT, "30000", "How long a request to another node may take.", HIGH),
    Setting(
        "fetch.max.bytes",
        Kind.INT,
        "57671680",
        "The most that one fetch returns, whatever the client asks for.",
        check=at_least(1_024),
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        "1000",
        "Incremental fetch sessions that are remembered.",
        check=at_least(0),
    ),
    Setting(
        "max.request.partition.size.limit",
        Kind.INT,
        "2000",
        "Partitions in one answer to DescribeTopicPartitions.",
        check=at_least(1),
    ),
    Setting(
        "telemetry.max.bytes",
        Kind.INT,
        "1048576",
        "The largest push of client metrics that is accepted.",
        LOW,
        check=at_least(1),
    ),
    Setting(
        "metrics.listener",
        Kind.STRING,
        None,
        "Where metrics and health are shown over HTTP: host:port; unset, nowhere. Not a setting of Kafka.",
    ),
    Setting(
        "metrics.partitions.max",
        Kind.INT,
        "4000",
        "Partitions, and topics, that have metrics of their own; the others are only counted. Not a setting of Kafka.",
        check=at_least(0),
        update=CLUSTER_WIDE,
    ),
    Setting("sasl.enabled.mechanisms", Kind.LIST, "GSSAPI", "SASL mechanisms that clients may use.", update=PER_BROKER),
    Setting(
        "sasl.mechanism.inter.broker.protocol",
        Kind.STRING,
        "GSSAPI",
        "The SASL mechanism between brokers.",
        update=PER_BROKER,
    ),
    Setting(
        "sasl.jaas.config", Kind.PASSWORD, None, "Credentials of a listener in the form of JAAS.", update=PER_BROKER
    ),
    Setting("sasl.server.max.receive.size", Kind.INT, "524288", "The largest message before a client is logged in."),
    Setting(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Whether a client must show a certificate: required, requested or none.",
        check=one_of("required", "requested", "none"),
        update=PER_BROKER,
    ),
    Setting(
        "ssl.enabled.protocols", Kind.LIST, "TLSv1.2,TLSv1.3", "Versions of TLS that are accepted.", update=PER_BROKER
    ),
    Setting("ssl.keystore.type", Kind.STRING, "JKS", "The format of the key store.", update=PER_BROKER),
    Setting(
        "ssl.keystore.location", Kind.STRING, None, "The file with the broker's key and certificate.", update=PER_BROKER
    ),
    Setting("ssl.keystore.password", Kind.PASSWORD, None, "The password of the key store.", update=PER_BROKER),
    Setting("ssl.key.password", Kind.PASSWORD, None, "The password of the key in the key store.", update=PER_BROKER),
    Setting("ssl.truststore.type", Kind.STRING, "JKS", "The format of the trust store.", update=PER_BROKER),
    Setting(
        "ssl.truststore.location",
        Kind.STRING,
        None,
        "The file with the certificates that are trusted.",
        update=PER_BROKER,
    ),
    Setting("ssl.truststore.password", Kind.PASSWORD, None, "The password of the trust store.", update=PER_BROKER),
    Setting(
        "authorizer.class.name", Kind.STRING, "", "What decides on access; empty for everything to everybody.", LOW
    ),
    Setting(
        "delegation.token.secret.key",
        Kind.PASSWORD,
        None,
        "The secret that signs delegation tokens; unset, there are none.",
    ),
    Setting(
        "delegation.token.max.lifetime.ms",
        Kind.LONG,
        "604800000",
        "How long a delegation token lives at most.",
        check=at_least(1),
    ),
    Setting(
        "delegation.token.expiry.time.ms",
        Kind.LONG,
        "86400000",
        "How long a delegation token is good before it must be renewed.",
        check=at_least(1),
    ),
    Setting("quota.window.num", Kind.INT, "11", "Samples that client quotas remember.", LOW, check=at_least(1)),
    Setting(
        "quota.window.size.seconds", Kind.INT, "1", "How long one sample of a client quota is.", LOW, check=at_least(1)
    ),
)
