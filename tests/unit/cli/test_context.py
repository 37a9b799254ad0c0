"""`penstock context`: names for clusters."""

import json
from pathlib import Path

import pytest

from penstock.cli.connection.completion import complete_contexts
from penstock.client.contexts import Contexts
from tests.unit.cli.conftest import Penstock


def test_a_life_of_a_context(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(
        "bootstrap.servers=ignored:1\nsecurity.protocol=SSL\nssl.key.password=hush\nacks=all\n"
    )
    assert "There are no contexts: `penstock context add" in penstock("context", "list").err
    made = penstock(
        *("context", "add", "prod", "-b", "a:1,b", "--command-config", "client.properties", "-X", "client.id=me")
    )
    assert made.code == 0
    assert "acks has no effect here" in made.err
    assert Contexts().load("prod") == {
        "bootstrap.servers": "a:1,b:9092",
        "security.protocol": "SSL",
        "ssl.key.password": "hush",
        "client.id": "me",
    }
    assert penstock("context", "add", "prod", "-b", "c:1").code == 2
    assert penstock("context", "add", "lab", "-b", "c:1", "--use").code == 0
    listed = json.loads(penstock("context", "list", "-o", "json").out)
    assert [(each["name"], each["in_use"]) for each in listed] == [("lab", True), ("prod", False)]
    assert "Commands find this cluster here: the context in use, lab." in penstock("context", "show").out
    shown = penstock("context", "show", "prod").out
    assert "(secret)" in shown
    assert "hush" not in shown
    assert penstock("context", "use", "prod").code == 0
    assert penstock("context", "remove", "prod").out == "Context prod is removed.\n"
    assert Contexts().in_use() is None
    assert complete_contexts("l") == ["lab"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("add", "prod"), 2, "where is the cluster prod? give -b host:port"),
        (("add", "../x", "-b", "a:1"), 1, "is no name of a context"),
        (("add", "x", "-b", "http://a"), 1, "is not an address"),
        (("add", "x", "-b", "a:1", "-X", "acks=all"), 2, "-X acks has no effect here"),
        (("use", "nope"), 1, "there is no context nope"),
        (("remove", "nope"), 1, "there is no context nope"),
        (("show", "nope"), 1, "there is no context nope"),
    ],
)
def test_mistakes(penstock: Penstock, arguments: tuple[str, ...], code: int, told: str) -> None:
    result = penstock("context", *arguments)
    assert result.code == code
    assert told in result.err
    assert Contexts().names() == []
