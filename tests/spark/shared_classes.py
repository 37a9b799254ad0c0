"""Spark's classes as Java keeps them once they are loaded and verified: with that file a Spark starts in half the time.

    SPARK_SUBMIT_OPTS=<java_options()> for a driver, the same for Master, Workers and executors

It is made once for each Java and each Spark, by a run that does what our tests do with Spark. Java itself compares it
with the jars that it finds, and goes on without it where they differ. Nothing that a user would see starts with it, and
no benchmark.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.once import make_once
from tests.spark.other_pyspark import FOLDER
from tests.spark.standalone import SMALL_JAVA, spark_home

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
QUIET = "-Xlog:cds*=off"
"""Java would complain of a file that does not fit where an answer is expected."""


def java_options() -> str:
    """For a small Java that has the classes."""
    return f"{SMALL_JAVA} -XX:SharedArchiveFile={archive()} {QUIET}"


@cache
def archive() -> Path:
    """The file."""
    folder = FOLDER / "shared-classes"
    kept = folder / "spark.jsa"
    make_once(folder, _fingerprint(), lambda: _make(kept))
    return kept


def with_classes(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a driver has them."""
    return {**environment, "SPARK_SUBMIT_OPTS": java_options()}


def _make(kept: Path) -> None:
    """By another name first: a Java that is given half of one crashes."""
    made = kept.with_suffix(".new")
    made.unlink(missing_ok=True)
    variables = {**os.environ, "SPARK_SUBMIT_OPTS": f"{SMALL_JAVA} -XX:ArchiveClassesAtExit={made} {QUIET}"}
    command = [sys.executable, "-m", "tests.spark.usual_work"]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert made.exists(), f"Java has kept no classes: {done.stdout}{done.stderr}"
    made.replace(kept)


def _fingerprint() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    digest = hashlib.sha256(subprocess.run([java, "-version"], check=True, capture_output=True).stderr)
    digest.update((Path(__file__).parent / "usual_work.py").read_bytes())
    for jar in sorted((spark_home() / "jars").glob("*.jar")):
        digest.update(f"{jar}\0{jar.stat().st_size}\0{jar.stat().st_mtime_ns}\0".encode())
    return digest.hexdigest()
