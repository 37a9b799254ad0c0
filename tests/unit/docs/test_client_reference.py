"""The reference of the client names everything that is public, and says what it means."""

import inspect
import re

import pytest

import penstock.client
from docs.pages import client_reference
from penstock.client.configuration.options import ClientOptions, ConsumerOptions, GroupConsumerOptions, ProducerOptions

PAGE = client_reference.page()


@pytest.mark.parametrize("name", penstock.client.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert f"\n### {name}\n" in PAGE or f"\n| `{name}` | " in PAGE


@pytest.mark.parametrize("name", ["publish", "create_topic", "consume", "group_consumer", "flush", "result", "offsets"])
def test_methods_have_their_signature(name: str) -> None:
    assert re.search(rf"\n#### {name}\n\n```text\n(await )?{name}\(", PAGE)


def test_what_is_inside_is_not_there() -> None:
    assert not re.search(r"\n#### _", PAGE)
    for name in client_reference.INSIDE:
        assert f"\n#### {name}\n" not in PAGE
    assert "penstock.client." not in PAGE
    assert " at 0x" not in PAGE


def test_everything_is_described() -> None:
    blocks = re.findall(r"\n####? (\w+)\n(.*?)(?=\n#|\Z)", PAGE, re.DOTALL)
    assert len(blocks) > 80
    assert not [name for name, text in blocks if not re.sub(r"```.*?```", "", text, flags=re.DOTALL).strip()]


@pytest.mark.parametrize("options", [ClientOptions, ConsumerOptions, GroupConsumerOptions, ProducerOptions])
def test_every_option_has_a_meaning(options: type) -> None:
    part = PAGE.partition(f"\n### {options.__name__}\n")[2].partition("\n#")[0]
    for name in inspect.get_annotations(options):
        assert re.search(rf"^\| `{name}` \| `.*` \| \S.*\S \|$", part, re.MULTILINE), name
    assert "|  |" not in part
