"""Properties of clients: which have an effect in commands, and which are secret."""

from penstock.cli.connection.properties import EFFECTIVE, is_secret, without_effect


def test_a_property_without_effect_is_named_with_the_one_that_may_be_meant() -> None:
    assert without_effect(dict.fromkeys(EFFECTIVE, "")) == {}
    assert without_effect({"security.protcol": "SSL", "acks": "all"}) == {
        "security.protcol": "security.protocol",
        "acks": "",
    }


def test_passwords_are_secret() -> None:
    secret = [name for name in EFFECTIVE if is_secret(name)]
    assert secret == [
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    ]
