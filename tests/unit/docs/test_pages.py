"""Pages generated from the code are up to date."""

import re

import pytest

from docs.pages import configuration, effects, protocol
from docs.pages.__main__ import DOCS, PAGES
from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.server.connections.dispatch import Dispatch
from penstock.server.handlers.tables import BROKER_HANDLERS, BROKER_ONLY, CONTROLLER_HANDLERS
from penstock.wire.api import CONTROLLER_ONLY, Api


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run ./dev pages, and look at what has changed"


def test_an_api_is_either_served_or_left_out_for_a_reason() -> None:
    controllers = Dispatch(CONTROLLER_HANDLERS, leaves_out=BROKER_ONLY).routes
    served = {*controllers, *Dispatch(BROKER_HANDLERS, leaves_out=CONTROLLER_ONLY).routes}
    assert served.isdisjoint(protocol.WHY_NOT), "what is served needs no excuse any more"
    assert served | protocol.WHY_NOT.keys() == set(Api)


def test_every_key_and_every_setting_has_a_line() -> None:
    keys = re.findall(r"^\| (\d+) \|", protocol.page(), re.MULTILINE)
    assert [int(key) for key in keys] == [int(api) for api in Api]
    page = configuration.page()
    for name in (*BROKER_SETTINGS, *TOPIC_SETTINGS, *GROUP_SETTINGS):
        assert f"| `{name}` |" in page


def test_what_a_setting_may_be_is_told_in_words() -> None:
    assert configuration.valid(TOPIC_SETTINGS["cleanup.policy"]) == "`compact`, `delete`"
    assert configuration.valid(TOPIC_SETTINGS["compression.lz4.level"]) == "1 to 17"
    assert configuration.valid(BROKER_SETTINGS["num.partitions"]) == "≥ 1"
    assert configuration.valid(TOPIC_SETTINGS["preallocate"]) == "true, false"
    assert "gzip" in configuration.valid(TOPIC_SETTINGS["compression.gzip.level"])


@pytest.mark.parametrize(
    "name",
    ["retention.ms", "log.retention.hours", "num.partitions", "advertised.listeners", "offsets.topic.num.partitions"],
)
def test_what_the_code_reads_has_an_effect(name: str) -> None:
    assert name in effects.effective()


@pytest.mark.parametrize("name", ["ssl.keystore.location", "compression.type", "segment.jitter.ms"])
def test_what_nobody_reads_has_none(name: str) -> None:
    assert name not in effects.effective()


def test_what_is_read_in_vain_is_read() -> None:
    assert set(effects.names_read()) >= effects.READ_IN_VAIN


def test_pictures_fetch_nothing() -> None:
    for path in (DOCS / "pictures").glob("*.svg"):
        links = set(re.findall(r"https?://[^\"')\s]+", path.read_text()))
        assert links <= {"http://www.w3.org/2000/svg"}, path.name
