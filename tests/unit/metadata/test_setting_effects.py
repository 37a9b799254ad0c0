"""Settings without effect: what is declared is what the code does, and which values ask for what is missing."""

import pytest

from docs.pages import effects as scan
from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.effects import GAPS, listed, without_effect
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.refusals import refusals
from penstock.metadata.settings.topic import TOPIC_SETTINGS

KNOWN = {*BROKER_SETTINGS, *TOPIC_SETTINGS, *GROUP_SETTINGS}


def test_a_setting_is_declared_without_effect_exactly_if_nothing_acts_on_it() -> None:
    declared = {name for name, gap in GAPS.items() if not gap.is_partial}
    unread = KNOWN - scan.effective()
    assert declared - unread == set(), "the code acts on these: take them out of effects.py"
    assert unread - declared == set(), "nothing acts on these: declare them in effects.py, with what is true instead"


def test_a_setting_with_half_an_effect_is_read() -> None:
    assert {name for name, gap in GAPS.items() if gap.is_partial} <= scan.effective()


@pytest.mark.parametrize(
    ("name", "text", "is_missing"),
    [
        ("num.io.threads", "8", True),
        ("num.io.threads", " ", False),
        ("num.partitions", "8", False),
        ("log.cleanup.policy", "delete", False),
        ("log.cleanup.policy", "", False),
        ("log.cleanup.policy", "delete, compact", True),
        ("preallocate", "False", False),
        ("preallocate", "true", True),
        ("compression.type", "producer", False),
        ("compression.type", "zstd", True),
        ("my.plugin", "y", True),
        ("listener.name.internal.max.connections", "5", True),
    ],
)
def test_a_value_without_effect_asks_for_something_that_is_missing(name: str, text: str, is_missing: bool) -> None:
    assert bool(without_effect({name: text}, {**BROKER_SETTINGS, **TOPIC_SETTINGS})) is is_missing


def test_the_same_reason_is_given_once() -> None:
    gaps = without_effect(
        {"num.io.threads": "8", "preallocate": "true", "background.threads": "2"}, {**BROKER_SETTINGS}
    )
    assert listed(gaps) == (
        "background.threads, num.io.threads (one event loop serves all requests, with workers beside it); "
        "preallocate (this version has no such setting)"
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "access control"),
        ("super.users", "User:admin", "everybody is one"),
        ("sasl.enabled.mechanisms", "PLAIN", "asks for logins"),
        ("sasl.login.callback.handler.class", "org.example.Handler", "asks for logins"),
        ("listener.name.client.scram-sha-256.sasl.jaas.config", "…", "asks for logins"),
        ("ssl.keystore.location", "/etc/kafka/keys.jks", "travel unencrypted"),
        ("ssl.cipher.suites", "TLS_AES_256_GCM_SHA384", "travel unencrypted"),
        ("ssl.client.auth", "required", "travel unencrypted"),
        ("listener.name.client.ssl.keystore.location", "/etc/kafka/keys.jks", "travel unencrypted"),
        ("security.inter.broker.protocol", "SSL", "is not PLAINTEXT"),
        ("remote.log.storage.system.enable", "TRUE", "tiered storage"),
        ("log.cleanup.policy", "compact", "asks for compaction"),
        ("log.cleanup.policy", "delete , compact", "asks for compaction"),
    ],
)
def test_what_must_not_be_ignored_is_refused_with_what_to_do(name: str, text: str, words: str) -> None:
    (sentence,) = refusals({name: text, "num.partitions": "3"}).values()
    assert sentence.startswith(f"{name} ")
    assert words in sentence
    assert ": remove it, and keep" in sentence or ": set it to" in sentence
    assert text not in sentence or text == "compact", "it may be a secret"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", ""),
        ("super.users", " "),
        ("sasl.enabled.mechanisms", "GSSAPI"),
        ("ssl.client.auth", "none"),
        ("ssl.endpoint.identification.algorithm", ""),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        ("remote.log.storage.system.enable", "false"),
        ("remote.log.manager.thread.pool.size", "5"),
        ("log.cleanup.policy", "delete"),
        ("log.cleaner.enable", "true"),
        ("principal.builder.class", "org.example.Builder"),
    ],
)
def test_what_asks_for_nothing_dangerous_is_not_refused(name: str, text: str) -> None:
    assert refusals({name: text}) == {}
