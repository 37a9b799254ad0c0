"""Our client against an Apache Kafka that requires a login, and that is killed during use."""

import asyncio
import hashlib
import socket
from collections.abc import Iterator

import pytest

from harness.kafka.kafka_node import HOST, KafkaNode
from penstock.client.client import Client
from penstock.client.connection.login import Credentials
from penstock.client.connection.sasl import Mechanism
from penstock.client.errors import ClientError, LoginFailed, NotABroker
from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)

pytestmark = pytest.mark.peers

USER, PASSWORD = "alice", "open, =sesame"
SCRAM: dict[Mechanism, tuple[int, str]] = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}


class GuardedNode(KafkaNode):
    """A node with a second listener that requires a login."""

    @property
    def guarded(self) -> str:
        return self.properties["listeners"].rpartition("GUARDED://")[2]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    directory = tmp_path_factory.mktemp("guarded")
    plain = GuardedNode(directory)
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    listeners = plain.properties["listeners"]
    module = "org.apache.kafka.common.security"
    node = GuardedNode(
        directory,
        {
            "listeners": f"{listeners},GUARDED://{HOST}:{port}",
            "controller.quorum.voters": plain.properties["controller.quorum.voters"],
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
            "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.guarded.plain.sasl.jaas.config": (
                f'{module}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            "listener.name.guarded.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            "listener.name.guarded.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            "listener.name.guarded.connections.max.reauth.ms": "2000",
        },
    )
    node.bootstrap = plain.bootstrap
    with node:
        asyncio.run(add_user(node.bootstrap))
        yield node


async def add_user(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        salt, rounds = b"0123456789abcdef", 4096
        upsertions = [
            ScramCredentialUpsertion(
                name=USER,
                mechanism=number,
                iterations=rounds,
                salt=salt,
                salted_password=hashlib.pbkdf2_hmac(name, PASSWORD.encode(), salt, rounds),
            )
            for number, name in SCRAM.values()
        ]
        for upsertion in upsertions:
            answer = await client.cluster.ask_any(
                AlterUserScramCredentialsRequest(deletions=(), upsertions=[upsertion]),
                AlterUserScramCredentialsResponse,
            )
            assert [each.error_code for each in answer.results] == [ErrorCode.NONE], answer


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_opens_the_door_and_keeps_it_open(guarded: GuardedNode, mechanism: Mechanism) -> None:
    async def story() -> None:
        topic = f"guarded-{mechanism.lower()}"
        login = Credentials(mechanism, USER, PASSWORD)
        async with asyncio.timeout(25), Client(guarded.guarded, sasl=login) as client:
            await client.create_topic(topic)
            for number in range(12):  # longer than a login is valid
                assert await client.publish(topic, str(number)) == (0, number)
                await asyncio.sleep(0.25)
            found = [message.value async for message in client.consume(topic, until_end=True)]
            assert found == [b"%d" % number for number in range(12)]

    asyncio.run(story())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_told_at_once(guarded: GuardedNode, mechanism: Mechanism) -> None:
    async def story() -> None:
        async with Client(guarded.guarded, sasl=(mechanism, USER, "wrong")) as client:
            with pytest.raises(LoginFailed, match="refuses the login of alice"):
                await client.topics()

    asyncio.run(story())


def test_what_is_wrong_with_a_login_is_told(guarded: GuardedNode) -> None:
    async def try_it(bootstrap: str, sasl: Credentials | None, timeout_ms: int = 3000) -> ClientError:
        async with Client(bootstrap, sasl=sasl, timeout_ms=timeout_ms) as client:
            with pytest.raises(ClientError) as error:
                await client.topics()
            return error.value

    alice = Credentials("PLAIN", USER, PASSWORD)
    needless = asyncio.run(try_it(guarded.bootstrap, alice))
    assert "expects no login on this port: leave the credentials out" in str(needless)
    missing = asyncio.run(try_it(guarded.guarded, None))
    assert "closed the connection at the first request: it may want a login (SASL)" in str(missing)
    with pytest.raises(ValueError, match="GSSAPI is not among"):
        asyncio.run(try_it(guarded.guarded, Credentials("GSSAPI", USER, PASSWORD)))  # type: ignore[arg-type]


def test_a_broker_that_dies_and_comes_back_has_each_record_once(guarded: GuardedNode) -> None:
    count, topic = 4000, "guarded-restart"

    async def story() -> list[int]:
        loop = asyncio.get_running_loop()
        async with Client(guarded.bootstrap) as client:
            await client.create_topic(topic, configs={"flush.messages": "1"})
            producer = client.producer(batch_bytes=400)
            sent = []
            for number in range(count):
                sent.append(await producer.send(topic, b"%d" % number))
                if number == count // 2:
                    await asyncio.sleep(0.05)
                    await loop.run_in_executor(None, guarded.kill)
                    starting = loop.run_in_executor(None, guarded.start)
            await starting
            deliveries = await asyncio.gather(*sent)
            assert [each.offset for each in deliveries] == list(range(count))
            return [int(message.value or b"-1") async for message in client.consume(topic, until_end=True)]

    assert asyncio.run(story()) == list(range(count))


def test_a_controller_s_port_is_not_taken_for_a_broker_s(guarded: GuardedNode) -> None:
    """It speaks the protocol but serves neither Metadata nor topics."""
    controller = guarded.properties["controller.quorum.voters"].partition("@")[2]

    async def story() -> None:
        async with Client(controller, timeout_ms=2000) as client:
            with pytest.raises(ClientError, match="serves no version at all of Metadata") as error:
                await client.topics()
            assert not isinstance(error.value, NotABroker)

    asyncio.run(story())
