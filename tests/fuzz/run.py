"""Fuzzes one target: `python tests/fuzz/run.py TARGET --runs 1000000`, `--seconds 30`, or both.

A parent makes seeds, starts the fuzzer, and reports the result; the fuzzer is a process of its own because it ends
without returning. Inputs that it finds interesting are kept in `.cache/fuzz/TARGET` for the next run; an input that
breaks a rule is kept as `tests/fuzz/corpus/TARGET/found-…`, where the replay in every commit will see it. `--input
FILE` runs single inputs without a fuzzer, `--record` adds the run to `docs/results/fuzz.json` and the table in
`fuzz.md`.
"""

import argparse
import fcntl
import gc
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
WORK = ROOT / ".cache" / "fuzz"
RESULTS = ROOT / "docs" / "results"

# Beyond these limits the fuzzer itself stops: an endless loop, or memory that our own measure did not see in time. It
# uses the wall clock, and a busy machine may give a process no CPU time for half a minute.
HANG_SECONDS = 300
RESIDENT_MIB_MAX = 2048
# Preparing a message's reader for tracing takes about 40 ms. A short run traces a few, different ones each time.
SHORT_SEEDS_MAX = 100
SHORT_TRACED_SHARE = 0.2

COLUMNS = (
    "Target",
    "Executions",
    "Seconds",
    "Per second",
    "Slowest case",
    "Resident set grew",
    "Executions with a bound on allocations",
    "Measured exactly",
    "Most allocated",
    "Of what is allowed",
    "Runs",
)
TABLE_START, TABLE_END = "<!-- table: written by run.py --record -->", "<!-- end of table -->"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fuzz one target.")
    parser.add_argument("target")
    parser.add_argument("--runs", type=int, default=0, help="stop after so many executions")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so many seconds")
    parser.add_argument("--short", action="store_true", help="start from a sample, and keep only what breaks a rule")
    parser.add_argument("--record", action="store_true", help="add the run to docs/results")
    parser.add_argument("--findings", type=Path, help="where inputs that break a rule are kept")
    parser.add_argument("--input", type=Path, nargs="+", help="run these inputs once, without a fuzzer")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if options.inside:
        fuzz_inside(options)
    if options.input:
        return replay(options.target, options.input)
    return fuzz(options)


def replay(name: str, files: list[Path]) -> int:
    """Runs inputs unchanged; a failure is shown by its traceback."""
    from tests.fuzz.targets import TARGETS

    for file in files:
        TARGETS[name](file.read_bytes())
        print(f"{file}: nothing wrong")
    return 0


# --- the parent -------------------------------------------------------------------------------------------------------


def fuzz(options: argparse.Namespace) -> int:
    """Starts the fuzzer and waits for it."""
    from tests.fuzz.seeds import seeds_for
    from tests.fuzz.targets import TARGETS

    name: str = options.target
    if name not in TARGETS:
        print(f"{name} is not one of: {', '.join(TARGETS)}")
        return 2
    findings = options.findings or CORPUS / name
    for folder in (findings, WORK / name):
        folder.mkdir(parents=True, exist_ok=True)
    known, started_s = set(findings.glob("found-*")), time.time()
    log = WORK / f"{name}-{os.getpid()}.log"
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        (place / "seeds").mkdir()
        seeds = seeds_for(name, random.Random())
        if options.short:
            seeds = random.sample(seeds, min(len(seeds), SHORT_SEEDS_MAX))
        for number, seed in enumerate(seeds):
            (place / "seeds" / str(number)).write_bytes(seed)
        command = [sys.executable, __file__, name, "--inside", str(place), "--findings", str(findings)]
        command += ["--runs", str(options.runs), "--seconds", str(options.seconds)]
        command += ["--short"] if options.short else []
        with log.open("wb") as out:
            status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, check=False).returncode
        told = json.loads((place / "told.json").read_text()) if (place / "told.json").exists() else None
    if status != 0 or told is None:
        print(log.read_text(errors="replace")[-4000:])
        print(f"{name}: the fuzzer ended with {status}; its output is in {log.relative_to(ROOT)}")
        for file in sorted(set(findings.glob("found-*")) - known):
            print(f"reproduce: python tests/fuzz/run.py {name} --input {os.path.relpath(file, ROOT)}")
        return 1
    log.unlink()
    if not options.short:
        measure_kept(TARGETS[name], WORK / name, started_s, findings, told)
    print(
        f"{name}: {told['executions']:,} executions in {told['seconds']:.0f} s, "
        f"{told['executions'] / told['seconds']:,.0f}/s, slowest {told['slowest_ms']:.1f} ms, "
        f"memory +{told['growth_mib']:.1f} MiB, measured {told['measured']:,}: at most {told['peak_kib']:,.0f} KiB, "
        f"{told['filled']:.0%} of what is allowed"
    )
    if options.record:
        record(name, told, options)
    return 0


def measure_kept(target: Any, work: Path, since_s: float, findings: Path, told: dict[str, Any]) -> None:
    """Measures the inputs that the fuzzer kept exactly, here, where nothing is traced."""
    for file in sorted(file for file in work.iterdir() if file.stat().st_mtime >= since_s):
        data = file.read_bytes()
        try:
            target.measure(data)
        except Exception:
            (findings / f"found-memory-{file.name}").write_bytes(data)
            raise
    told["measured"] += target.measured
    told["peak_kib"] = max(told["peak_kib"], target.peak_max_bytes / 2**10)
    told["filled"] = max(told["filled"], target.filled_most)


def record(name: str, told: dict[str, Any], options: argparse.Namespace) -> None:
    """Adds the run to the results. Several runs of a target are added up."""
    command = f"python tests/fuzz/run.py {name}"
    command += f" --runs {options.runs}" if options.runs else ""
    command += f" --seconds {options.seconds:g}" if options.seconds else ""
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, check=False)
    with (WORK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = RESULTS / "fuzz.json"
        runs = json.loads(file.read_text()) if file.exists() else []
        run = {
            "target": name,
            "executions": told["executions"],
            "seconds": round(told["seconds"], 1),
            "slowest_ms": round(told["slowest_ms"], 2),
            "growth_mib": round(told["growth_mib"], 1),
            "measured": told["measured"],
            "peak_kib": round(told["peak_kib"], 1),
            "filled": round(told["filled"], 3),
            "date": datetime.now(UTC).date().isoformat(),
            "revision": revision.stdout.decode().strip(),
            "python": platform.python_version(),
            "machine": machine(),
            "command": command,
        }
        runs.append(run)
        file.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
        page = RESULTS / "fuzz.md"
        text = page.read_text() if page.exists() else f"# Fuzzing\n\n{TABLE_START}\n{TABLE_END}\n"
        before, _, rest = text.partition(TABLE_START)
        _, _, after = rest.partition(TABLE_END)
        page.write_text(f"{before}{TABLE_START}\n{table(runs)}{TABLE_END}{after}")


def table(runs: list[dict[str, Any]]) -> str:
    """A table with all runs of a target in one row."""
    lines = [
        f"| {' | '.join(COLUMNS)} |",
        f"|---{'|--:' * (len(COLUMNS) - 1)}|",
    ]
    for name in dict.fromkeys(run["target"] for run in sorted(runs, key=lambda run: str(run["target"]))):
        mine = [run for run in runs if run["target"] == name]
        executions, seconds = sum(run["executions"] for run in mine), sum(run["seconds"] for run in mine)
        slowest_ms, growth_mib = max(run["slowest_ms"] for run in mine), max(run["growth_mib"] for run in mine)
        slowest = f"{slowest_ms:.1f} ms" if slowest_ms else "< 2 ms"
        # Runs before allocations were bounded lack these numbers.
        bounded = [run for run in mine if "measured" in run]
        within = sum(run["executions"] for run in bounded)
        measured = sum(run["measured"] for run in bounded)
        peak_kib = max((run["peak_kib"] for run in bounded), default=0.0)
        filled = max((run["filled"] for run in bounded), default=0.0)
        lines.append(
            f"| {name} | {executions:,} | {seconds:,.0f} | {executions / seconds:,.0f} | {slowest} "
            f"| {growth_mib:.1f} MiB | {within:,} | {measured:,} | {peak_kib:,.0f} KiB | {filled:.0%} | {len(mine)} |"
        )
    return "\n".join(lines) + "\n"


def machine() -> str:
    """The hardware of the machine, not its name."""
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores, {gib:.0f} GiB"


# --- the fuzzer -------------------------------------------------------------------------------------------------------


def fuzz_inside(options: argparse.Namespace) -> None:
    """Instruments the code under test, then passes control to libFuzzer and never returns."""
    started = time.monotonic()
    name, place, runs, seconds = options.target, options.inside, options.runs, options.seconds
    work = place / "work" if options.short else WORK / name
    work.mkdir(parents=True, exist_ok=True)
    import atheris

    # Declarations and the code that compiles them run before any byte arrives; counting their lines is useless.
    with atheris.instrument_imports(include=["penstock"]):
        import_module("penstock.wire.varint")
    for module in ("penstock.wire.compile", "tests.fuzz.declarations"):
        import_module(module)
    with atheris.instrument_imports(include=["penstock"]):
        from penstock.wire import codec
        from tests.fuzz.guard import INPUT_BYTES_MAX
        from tests.fuzz.targets import TARGETS

    def traced(compile_reader: Any) -> Any:
        def compile_traced(*which: Any) -> Any:
            reader = compile_reader(*which)
            is_traced = not options.short or name == "produce" or random.random() < SHORT_TRACED_SHARE
            return atheris.instrument_func(reader) if is_traced else reader

        return compile_traced

    # The readers within a budget are twins of the others: tracing them adds nothing, except where they are used alone.
    which = "compile_budgeted_reader" if name == "budgets" else "compile_reader"
    setattr(codec, which, traced(getattr(codec, which)))
    target = TARGETS[name]
    target(b"")
    gc.collect()
    gc.freeze()
    target.start_over()

    def end() -> None:
        told = {
            "executions": target.executions,
            "seconds": time.monotonic() - started,
            "slowest_ms": target.slowest_ms,
            "growth_mib": target.growth_max_bytes / 2**20,
            "measured": target.measured,
            "peak_kib": target.peak_max_bytes / 2**10,
            "filled": target.filled_most,
        }
        (place / "told.json").write_text(json.dumps(told))
        os._exit(0)

    def one(data: bytes) -> None:
        target(data)
        done = target.executions
        if done == runs or (seconds and not done & 31 and time.monotonic() - started >= seconds):
            end()

    arguments = [
        sys.argv[0],
        f"-max_len={INPUT_BYTES_MAX}",
        f"-timeout={HANG_SECONDS}",
        f"-report_slow_units={HANG_SECONDS}",
        f"-rss_limit_mb={RESIDENT_MIB_MAX}",
        f"-artifact_prefix={options.findings}/found-",
        "-reload=0",
        "-print_pcs=0",
        str(work),
        *(str(folder) for folder in (CORPUS / name, place / "seeds") if folder.is_dir()),
    ]
    atheris.Setup(arguments, one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
