"""Apache Kafka with five listeners: plaintext, TLS, TLS with client certificates, SASL, and SASL over TLS.

Its brokers have the users alice (PLAIN) and bob (SCRAM). Both may use topics; only anonymous clients, without a login
or certificate, may describe log directories.
"""

import contextlib
import socket
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from harness.kafka.kafka_node import HOST, KafkaNode
from tests.certificates import Authority

PASSWORD = "changeit"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DOORS = {"TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
ADMIN_TIMEOUT_S = 30


class SecuredKafka(KafkaNode):
    """See the module. `doors` has the address of each listener; `authority` signs the broker's certificate."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.authority = Authority()
        self.directory = directory
        (directory / "broker.p12").write_bytes(self.authority.identity("broker").pkcs12(PASSWORD))
        (directory / "authority.pem").write_text(self.authority.pem)
        self.doors = dict(zip(DOORS, (f"{HOST}:{port}" for port in _free_ports(len(DOORS))), strict=True))
        self.properties = {**self.properties, **self._added()}

    def _added(self) -> dict[str, str]:
        listeners = [self.properties["listeners"], *(f"{name}://{address}" for name, address in self.doors.items())]
        protocols = [
            self.properties["listener.security.protocol.map"],
            *(f"{name}:{protocol}" for name, protocol in DOORS.items()),
        ]
        added = {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(protocols),
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.directory / "broker.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "authority.pem"),
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
        }
        for door in ("login", "both"):
            added[f"listener.name.{door}.plain.sasl.jaas.config"] = f'{PLAIN} user_alice="alice-secret";'
            for mechanism in MECHANISMS:
                added[f"listener.name.{door}.{mechanism.lower()}.sasl.jaas.config"] = f"{SCRAM};"
        return added

    def start(self) -> None:
        """Returns when all users can log in."""
        super().start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion("bob", ScramCredentialInfo(mechanism, 4096), b"bob-secret")
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(ADMIN_TIMEOUT_S)
        only_one = AclBinding(
            ResourceType.BROKER,
            "kafka-cluster",
            ResourcePatternType.LITERAL,
            "User:nobody",
            "*",
            AclOperation.DESCRIBE,
            AclPermissionType.ALLOW,
        )
        for done in admin.create_acls([only_one]).values():
            done.result(ADMIN_TIMEOUT_S)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
