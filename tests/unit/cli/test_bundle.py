"""`penstock doctor --bundle`: one file for support, without secrets, also when nothing answers."""

import json
import os
import stat
import time
import zipfile
from pathlib import Path

from penstock.cli.doctor.bundle import Bundle, hidden, plain
from penstock.client.admin.configs import ConfigEntry, ConfigSource
from penstock.client.metadata import Broker, TopicPartition
from tests.unit.cli.conftest import Penstock

NOBODY = "127.0.0.1:1"


def the_bundle(directory: Path) -> zipfile.ZipFile:
    (path,) = directory.glob("penstock-bundle-*.zip")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "only its owner reads it"
    return zipfile.ZipFile(path)


def test_a_bundle_is_written_also_if_nobody_answers(penstock: Penstock, tmp_path: Path) -> None:
    began_s = time.monotonic()
    result = penstock("doctor", "--bundle", "-b", NOBODY, "--timeout", "2", "-o", "json")
    assert time.monotonic() - began_s < 6
    assert result.code == 1
    found = {each["check"]: each for each in json.loads(result.out)}
    assert found["broker"]["is_well"] is False
    with the_bundle(tmp_path) as bundle:
        assert f"{len(bundle.namelist())} files" in found["bundle"]["found"]
        findings = json.loads(bundle.read("findings.json"))
        assert [each for each in found.values() if each["check"] != "bundle"] == findings
        assert json.loads(bundle.read("machine.json"))["penstock"]
        assert f"cluster: no connection to {NOBODY}" in bundle.read("missing.txt").decode()
        assert NOBODY in bundle.read("README.txt").decode()


def test_the_brokers_settings_are_in_it_without_secrets(penstock: Penstock, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "node.id=7\n# a comment with hunter2\nssl.keystore.password=hunter2\n"
        "listener.name.internal.plain.sasl.jaas.config=x password=hunter2;\nlog.dirs=data\n"
    )
    penstock("doctor", "--bundle", "--offline", "-c", str(config), "--file", "here.zip")
    with zipfile.ZipFile(tmp_path / "here.zip") as bundle:
        text = bundle.read("settings.properties").decode()
        assert "node.id=7\n" in text
        assert "ssl.keystore.password=(secret)\n" in text
        assert not any(b"hunter2" in bundle.read(each) for each in bundle.namelist())


def test_properties_of_the_connection_are_in_it_without_secrets(penstock: Penstock, tmp_path: Path) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    properties = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={login}")
    penstock(
        "doctor", "--bundle", "-b", NOBODY, "--timeout", "1", *(each for pair in properties for each in ("-X", pair))
    )
    with the_bundle(tmp_path) as bundle:
        assert not any(b"hunter2" in bundle.read(each) for each in bundle.namelist())
        assert "sasl.jaas.config=(secret)" in bundle.read("README.txt").decode()


def test_an_existing_file_is_left_alone(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "here.zip").write_text("mine")
    result = penstock("doctor", "--bundle", "--offline", "--file", "here.zip")
    assert (result.code, (tmp_path / "here.zip").read_text()) == (1, "mine")
    assert "here.zip is there already" in result.err
    assert penstock("doctor", "--offline", "--file", "x.zip").code == 2


def test_what_fails_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    bundle = Bundle()
    bundle.add("a.json", {"x": 1})
    bundle.lacks("b.json", OSError("gone"))
    bundle.write(tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as file:
        assert json.loads(file.read("a.json")) == {"x": 1}
        assert file.read("missing.txt") == b"b.json: gone\n"
        assert all(os.sep not in name or name.count(os.sep) <= 2 for name in file.namelist())


def test_answers_become_json() -> None:
    secret = ConfigEntry("p", "hunter2", ConfigSource.STATIC, False, True, None)
    told = plain({TopicPartition("t", 1): (Broker(1, "h", 2, None), b"\x01", {3, 2}, secret)})
    assert json.loads(json.dumps(told)) == {
        "t[1]": [
            {"node_id": 1, "host": "h", "port": 2, "rack": None},
            "01",
            [2, 3],
            {
                "name": "p",
                "value": "(secret)",
                "source": "STATIC",
                "is_read_only": False,
                "is_sensitive": True,
                "documentation": None,
            },
        ]
    }


def test_secrets_are_known_by_their_names() -> None:
    names = ("ssl.key.password", "sasl.jaas.config", "ssl.keystore.key", "delegation.token.secret.key", "log.dirs")
    assert [hidden({each: "v"})[each] == "(secret)" for each in names] == [True, True, True, True, False]
