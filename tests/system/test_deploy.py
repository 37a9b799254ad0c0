"""Deployment files: the container's and the unit's files do what they promise, as far as it can be tested here."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from harness.ports import free_port
from tests.system.commands import ENVIRONMENT, PENSTOCK, Shell, a_broker
from tests.system.containerfile import DEPLOY, instructions, last, variables

pytestmark = pytest.mark.xdist_group("deploy")

ROOT = Path(__file__).parents[2]
PROGRAM = "/opt/penstock/bin/penstock"
EXPOSURE_MAX = 2.0


def test_the_sample_file_is_without_complaint(tmp_path: Path) -> None:
    assert "no complaints" in Shell(tmp_path)("config", "check", str(DEPLOY / "server.properties"))


# --- systemd ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def systemd_analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "-q", "systemd"], capture_output=True, timeout=1800, check=False)
        found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("needs systemd-analyze: install systemd")
    return found


def a_unit(directory: Path, text: str) -> str:
    """The unit, with a program that exists."""
    program = directory / "penstock"
    program.write_text(f'#!/bin/sh\nexec {" ".join(PENSTOCK)} "$@"\n')
    program.chmod(0o755)
    path = directory / "penstock.service"
    path.write_text(text.replace(PROGRAM, str(program)))
    return str(path)


def test_the_unit_is_one_that_systemd_takes(systemd_analyze: str, tmp_path: Path) -> None:
    def verdict(text: str) -> str:
        command = [systemd_analyze, "verify", "--man=no", a_unit(tmp_path, text)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        return f"{done.returncode} {done.stderr}".strip()

    unit = (DEPLOY / "penstock.service").read_text()
    assert verdict(unit) == "0"
    assert "'ProtectSytem'" in verdict(unit.replace("ProtectSystem", "ProtectSytem"))
    assert "not executable" in verdict(unit.replace(PROGRAM, "/nowhere/penstock"))


def test_the_unit_shuts_the_process_in(systemd_analyze: str, tmp_path: Path) -> None:
    unit = (DEPLOY / "penstock.service").read_text()
    command = [systemd_analyze, "security", "--offline=true", "--json=short", a_unit(tmp_path, unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and "offline" in done.stderr:
        pytest.skip("needs a systemd that judges files: 250 or newer")
    exposed = sum(float(row["exposure"]) for row in json.loads(done.stdout) if row["exposure"])
    assert 0 < exposed <= EXPOSURE_MAX, [row["name"] for row in json.loads(done.stdout) if row["exposure"]]
    for wanted in ("ProtectSystem=strict", "StateDirectory=penstock", "LimitNOFILE=65536", "Restart=on-failure"):
        assert f"\n{wanted}\n" in unit


# --- the container ----------------------------------------------------------------------------------------------------


def test_the_image_does_not_run_as_root() -> None:
    names = [name for name, _ in instructions()]
    assert last("USER") == "penstock"
    assert names.index("USER") > max(index for index, name in enumerate(names) if name == "RUN")
    assert variables()["PENSTOCK_LOG_DIRS"].startswith(last("VOLUME"))


def test_the_steps_of_the_container_lead_to_a_healthy_broker(tmp_path: Path) -> None:
    """Tests have no container engine: the same steps run in an empty directory instead of an image."""
    context, home = tmp_path / "src", tmp_path / "opt"
    context.mkdir()
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split(" ")
            for source in sources:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, context / source)
        elif name == "RUN" and "pip install" in rest:
            step = rest.replace("/opt/penstock", str(home)).replace("python -m venv", f"{sys.executable} -m venv")
            done = subprocess.run(["sh", "-ec", step], cwd=context, capture_output=True, timeout=1800, check=False)
            assert done.returncode == 0, done.stderr.decode()
    port, metrics = str(free_port()), str(free_port())
    inside = {
        name: value.replace("/var/lib", str(tmp_path))
        .replace("/opt/penstock", str(home))
        .replace("9092", port)
        .replace("9644", metrics)
        for name, value in variables().items()
    }
    inside["PATH"] = inside["PATH"].replace("$PATH", os.environ["PATH"])
    start = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    check = json.loads(re.sub(r".*CMD ", "", last("HEALTHCHECK")).replace("9092", port))
    environment = {k: v for k, v in ENVIRONMENT.items() if not k.startswith("PYTHON")} | inside

    def is_healthy() -> bool:
        done = subprocess.run(check, cwd=tmp_path, env=environment, capture_output=True, timeout=300, check=False)
        return done.returncode == 0

    assert not is_healthy(), "nothing runs yet"
    broker = subprocess.Popen(start, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    with broker:
        try:
            assert "ready" in broker.stdout.readline()
            assert is_healthy()
            assert (tmp_path / "penstock" / "data" / "directory").exists()
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=300) as answer:
                assert b"\npenstock_info{" in answer.read()
        finally:
            broker.terminate()
            broker.wait(300)
    assert broker.returncode == 0


def test_compose_agrees_with_the_image() -> None:
    compose = (DEPLOY / "compose.yaml").read_text()
    command = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert f"test: {json.dumps(['CMD', *command])}\n" in compose
    assert f"data:{last('VOLUME')}\n" in compose
    for port in last("EXPOSE").split():
        assert f'"127.0.0.1:{port}:{port}"' in compose
    assert "dockerfile: deploy/Containerfile" in compose


def test_a_broker_runs_by_the_sample_file(tmp_path: Path) -> None:
    text = (DEPLOY / "server.properties").read_text().replace("/var/lib", str(tmp_path)).replace(":9092", ":0")
    (tmp_path / "server.properties").write_text(text)
    with a_broker(tmp_path, "server", "--config", "server.properties") as broker:
        assert Shell(tmp_path)("topic", "create", "orders", "-b", broker.address).startswith("orders created")
