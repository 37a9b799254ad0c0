"""A real Prometheus, as Debian packages it, that scrapes nodes every second."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.ports import free_port
from tests.compatibility import debian

PACKAGE = "prometheus"
READY_S = 120.0
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "penstock-alerts.yml"

Sample = tuple[dict[str, str], float]


def promtool(*arguments: str, cwd: Path, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command = [debian.unpacked("promtool", PACKAGE), *arguments]
    return subprocess.run(command, cwd=cwd, input=given, capture_output=True, timeout=300, check=False)


class Questions:
    """What a Prometheus answers over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[Sample]:
        """The current value of an expression."""
        answer = self.get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        if answer is None:
            self.check()
            raise AssertionError(f"not answered: {expression}")
        found: dict[str, Any] = json.loads(answer)
        assert found["status"] == "success", (expression, found)
        return [(row["metric"], float(row["value"][1])) for row in found["data"]["result"]]

    def firing(self) -> set[str]:
        """The names of alerts that fire."""
        return {labels["alertname"] for labels, _ in self.query('ALERTS{alertstate="firing"}')}

    def until(self, is_so: Any, limit_s: float) -> None:
        """Waits until a condition holds."""
        deadline = time.monotonic() + limit_s
        while not is_so():
            self.check()
            assert time.monotonic() < deadline, f"never became true in {limit_s} s"
            time.sleep(0.2)

    def check(self) -> None:
        """Fails if it does not run any more."""

    def get(self, path: str) -> bytes | None:
        """The answer to a request; None if it was not served."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            return error.read() if error.code in (400, 422) else None
        except OSError:
            return None


class Prometheus(Questions):
    """Runs while the context is entered. Alerts have no `for` delay: a condition fires at its first evaluation."""

    def __init__(self, directory: Path, targets: Sequence[str]) -> None:
        super().__init__(f"http://127.0.0.1:{free_port()}")
        self._home = directory / "prometheus"
        self._targets = targets
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Prometheus":
        self._home.mkdir()
        (self._home / "rules.yml").write_text(re.sub(r"\bfor: \w+", "for: 0s", RULES.read_text()))
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "penstock", "static_configs": [{"targets": list(self._targets)}]}],
        }
        (self._home / "prometheus.yml").write_text(json.dumps(settings))
        command = [
            debian.unpacked("prometheus", PACKAGE),
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=self._home, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.until(lambda: self.get("/-/ready") is not None, READY_S)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)

    @property
    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")

    def check(self) -> None:
        """Fails if it does not run any more."""
        assert self._process is not None
        assert self._process.poll() is None, self.log[-2000:]
