"""Checks for common errors before a pipeline runs, in seconds and without Spark, and names the fixes."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.model.findings import Finding, well, wrong
from penstock.spark.lake.commit import CommitRefused, LakeTable
from penstock.spark.project.plan import Lake, Project
from penstock.spark.running.beginning import check_owner
from penstock.spark.running.checkpoint import Checkpoint, CheckpointError
from penstock.spark.running.cluster_checks import cluster_findings, schema_finding
from penstock.spark.running.session import OURS, is_local

JAVA_LEAST = 17
TIMEOUT_S = 20
_JAVA = re.compile(r'version "(\d+)')
BOUNDS = {
    "pyspark": ((4, 2), (4, 4)),
    "pyarrow": ((18,), (27,)),
    "pandas": ((2, 2), (3,)),
    "deltalake": ((1, 6, 6), (2,)),
}
"""The first tested version, and the first untested one after it."""
INSTALL = 'pip install ".[spark]" in a checkout of Penstock'


def findings(project: Project) -> Iterator[Finding]:
    """The findings of all checks."""
    lakes = [each for each in project.pipelines.values() if isinstance(each, Lake)]
    yield from machine_findings(project)
    yield from map(schema_finding, lakes)
    yield from cluster_findings(project, lakes, reads_records=True)
    for each in lakes:
        yield from lake_findings(project, each)


# --- this machine


def machine_findings(project: Project) -> Iterator[Finding]:
    """Checks Java, packages, variables that mislead Spark, settings, directories."""
    yield java_finding()
    yield from (package_finding(name) for name in BOUNDS)
    yield numba_finding()
    yield spark_home_finding()
    yield python_finding(project.spark.master)
    yield from conf_findings(project)
    yield directory_finding("checkpoints", project.spark.checkpoints)


def java_finding() -> Finding:
    """Checks Java: Spark 4 needs Java 17."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    fix = f"install Java {JAVA_LEAST} (apt-get install openjdk-17-jre-headless), or point JAVA_HOME to it"
    if java is None or not Path(java).exists():
        return wrong("java", f"there is no {java or 'java on the PATH'}", fix)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return wrong("java", f"{java} does not run: {error}", fix)
    found = _JAVA.search(done.stderr + done.stdout)
    if found is None or int(found[1]) < JAVA_LEAST:
        first = (done.stderr + done.stdout).strip().partition("\n")[0]
        return wrong("java", f"{java} is {first or 'silent'}", fix)
    return well("java", f"{java} is Java {found[1]}")


def package_finding(name: str) -> Finding:
    """Checks a package that Spark or the lake needs for a tested version."""
    least, end = BOUNDS[name]
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return wrong(name, "it is not installed", INSTALL)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if not least <= numbers < end:
        bounds = f"{_dotted(least)} or newer, but before {_dotted(end)}"
        return wrong(name, f"it is {version}; tried is {bounds}", f'{INSTALL}, or pip install "{name}<{_dotted(end)}"')
    return well(name, version)


def numba_finding() -> Finding:
    """Looks for Numba. It is optional: without it, decoding is slow."""
    try:
        return well("numba", importlib.metadata.version("numba"))
    except importlib.metadata.PackageNotFoundError:
        return well("numba", f"not there: records are read many times slower than with it; {INSTALL}")


def spark_home_finding() -> Finding:
    """A forgotten SPARK_HOME runs another Spark than pyspark's."""
    import importlib.util

    given = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    own = None if spec is None or spec.origin is None else Path(spec.origin).parent
    if given and own is not None and Path(given).resolve() != own.resolve():
        return wrong("SPARK_HOME", f"it is {given}, and pyspark is in {own}", "unset SPARK_HOME")
    return well("SPARK_HOME", given or "not set")


def python_finding(master: str) -> Finding:
    """Workers run PYSPARK_PYTHON; with another Python than ours they have other packages, or none."""
    given = os.environ.get("PYSPARK_PYTHON")
    if not given:
        where = "" if is_local(master) else "; executors need the same Python with penstock[spark] under the same path"
        return well("python", f"workers run {sys.executable}{where}")
    fix = f"export PYSPARK_PYTHON={sys.executable}, or unset it"
    program = "import sys, pyarrow, pandas, penstock; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(  # noqa: S603 - the variable says what Spark would run
            [given, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return wrong("python", f"PYSPARK_PYTHON is {given}, which does not run: {error}", fix)
    if done.returncode:
        return wrong("python", f"PYSPARK_PYTHON is {given}: {done.stderr.strip().splitlines()[-1]}", fix)
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if done.stdout.strip() != ours:
        return wrong("python", f"PYSPARK_PYTHON is Python {done.stdout.strip()}, and the driver is {ours}", fix)
    return well("python", f"workers run {given}")


def conf_findings(project: Project) -> Iterator[Finding]:
    """Finds settings that the runner makes itself, or that Spark would ignore."""
    is_well = True
    for name in project.spark.conf:
        if name in OURS:
            is_well = False
            instead = OURS[name]
            fix = f"write it as {instead}" if instead else "leave it out"
            yield wrong("conf", f"spark.conf.{name} is set by the runner", fix)
        elif not name.startswith("spark."):
            is_well = False
            yield wrong("conf", f"spark.conf.{name}: Spark ignores what does not begin with spark.", f"spark.{name}?")
    if is_well:
        yield well("conf", f"{len(project.spark.conf)} settings of your own")


def directory_finding(check: str, path: Path) -> Finding:
    """Checks that a directory is writable."""
    place = path
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        return wrong(check, f"{place} is not a directory", f"choose another place than {path}")
    if not os.access(place, os.W_OK | os.X_OK):
        return wrong(check, f"this user may not write to {place}", f"chown it, or choose another place than {path}")
    return well(check, str(path))


# --- a pipeline


def lake_findings(project: Project, lake: Lake) -> Iterator[Finding]:
    """Checks that checkpoint and table belong together."""
    uri = lake.target.uri
    if "://" not in uri:
        yield directory_finding("table", Path(uri))
    yield table_finding(Checkpoint(project.checkpoint(lake.name)), lake)


def table_finding(checkpoint: Checkpoint, lake: Lake) -> Finding:
    """Finds mismatches at which a run would fail with its first batch."""
    import pyarrow as pa

    table = LakeTable(lake.target.uri, lake.name, pa.schema([]), lake.target.is_by_day)
    try:
        check_owner(checkpoint, table)
        query_id, planned, done = checkpoint.query_id, checkpoint.last_planned, checkpoint.last_done
        if query_id is not None and planned is not None:
            is_there = table.holds(query_id, planned, checkpoint.ends(planned))
            if planned == done and not is_there:
                found = f"{lake.target.uri} lacks batch {done}, which is done by {checkpoint.path}"
                return wrong(lake.name, found, "move the checkpoint away and run again with --adopt")
    except (CommitRefused, CheckpointError) as error:
        found, _, fix = str(error).partition(". ")
        return wrong(lake.name, found, fix.rstrip("."))
    if done is None:
        return well(lake.name, f"begins at {lake.source.start}")
    return well(lake.name, f"goes on behind batch {done}")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
