"""Java's class data sharing (CDS) archive of Spark's classes, which halves Spark's start time.

    SPARK_SUBMIT_OPTS=<java_options()> for a driver, the same for Master, Workers and executors

It is made once for each Java and Spark version, by a run that does what our tests do with Spark. Java compares it with
the jars that it finds, and ignores it where they differ. Programs for users and benchmarks do not use it.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from harness.once import make_once
from harness.spark.other_pyspark import FOLDER
from harness.spark.standalone import SMALL_JAVA, spark_home

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
QUIET = "-Xlog:cds*=off"
"""Otherwise Java warns of an archive that does not match on the stream where a response is expected."""


def java_options() -> str:
    """Options of a small Java with the archive."""
    return f"{SMALL_JAVA} -XX:SharedArchiveFile={archive()} {QUIET}"


@cache
def archive() -> Path:
    """The archive file, made if needed."""
    folder = FOLDER / "shared-classes"
    kept = folder / "spark.jsa"
    make_once(folder, _fingerprint(), lambda: _make(kept))
    return kept


def with_classes(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a driver uses the archive."""
    return {**environment, "SPARK_SUBMIT_OPTS": java_options()}


def _make(kept: Path) -> None:
    """Makes the archive under a temporary name first: Java crashes on an incomplete archive."""
    made = kept.with_suffix(".new")
    made.unlink(missing_ok=True)
    variables = {**os.environ, "SPARK_SUBMIT_OPTS": f"{SMALL_JAVA} -XX:ArchiveClassesAtExit={made} {QUIET}"}
    command = [sys.executable, "-m", "harness.spark.usual_work"]
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
