"""Generates docs/results/side-by-side.md from the recorded figures alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import charts
from benchmarks.side_by_side.loads import Figures
from benchmarks.side_by_side.results import FOLDER, Rows, Spread, is_noisy, load, spread
from benchmarks.side_by_side.rows import CONTENDERS, PAIRS, ROWS

PAGE = "side-by-side.md"

COLUMNS = (
    # title, figure, share, digits
    ("MB/s", "mb_s", None),
    ("records/s", "records_s", None),
    ("ack p50 ms", "ack_ms", "p50"),
    ("p99", "ack_ms", "p99"),
    ("p99.9", "ack_ms", "p999"),
    ("end to end p50 ms", "end_to_end_ms", "p50"),
    ("p99", "end_to_end_ms", "p99"),
    ("p99.9", "end_to_end_ms", "p999"),
    ("CPU s/GB", "cpu_s_per_gb", None),
    ("broker cores", "broker_cpu", None),
    ("load cores", "load_cpu", None),
    ("RSS peak MB", "rss_peak_mb", None),
    ("RSS end MB", "rss_end_mb", None),
    ("ready s", "ready_s", None),
)

METHOD = """\
Penstock, Apache Kafka and a bare loop on one machine, under the same load, on loopback.

- **Turns.** Both brokers run all the time; in every round each contender has its turn on a new topic. Shown is the
  median of all rounds, and behind it the least and the most. Before its first round, each broker was under the row's
  own load: a new JVM for the whole warm-up and then for 15 s on every further load, the others for 5 s, because only a
  JVM gets faster for a minute.
- **Cores.** Brokers and load are pinned to different cores. A load that uses 95 % of its cores or more is the limit,
  and the row says so: the broker could do more. CPU is that of all threads, as the kernel counts it; on loopback the
  kernel's work of receiving is charged to the sender. Where brokers have one core, Kafka has no more than one core to
  show: it is made for many, so its CPU seconds per GB say more about a larger machine than its MB/s do.
- **Load.** Rows that name no client come from our own generator: pre-encoded Produce requests (acks=all, newest
  version, no idempotence), of which only the correlation id is patched, and a reader that walks batch headers. Every
  answer is checked. After a round the end offsets of the topic must have grown by exactly the records that were
  acknowledged.
- **Bytes** are those of record values, MB and GB are powers of ten.
- **Latency** is measured at a fixed pace, the same for all and told in the row: a share of the most that the slower
  contender takes with the same readers. It counts from the moment a request was due. In other rows acks wait in a queue
  that the load keeps full.
- **Kafka** has the JVM options of its start script (1 GB heap, G1) and its default settings; **Penstock** has its own.
  On both, deleted files go after a second instead of a minute.
- **Durability.** By default Penstock acknowledges what is on stable storage, Kafka what is in the page cache. So
  rows come in pairs: defaults against defaults, and the same durability on both sides. Penstock checks header and
  checksum of a batch; Kafka also opens every record, and so does Penstock where it says so.
- **Three brokers**, each of them controller, too, share the machine's cores with the load; their CPU and memory are
  those of all three. Each leads a third of the partitions, of which all have three replicas, two of which must be in
  sync. From stable storage means: a record is synced on every replica in sync before it is acknowledged.
- **The bare loop** receives, checks the CRC, writes, and answers with a fixed frame; it reads by sendfile. It is no
  broker: it shows how far the machine goes in one Python loop.
"""


def write(folder: Path = FOLDER) -> None:
    """Writes page and pictures."""
    rows = load(folder)
    (folder / PAGE).write_text(page(rows))
    charts.draw(rows, folder)


def page(rows: Rows) -> str:
    """The whole text of the page."""
    names = [name for name in ROWS if name in rows]
    parts = ["# Side by side with Apache Kafka\n", METHOD]
    for title, ours, other in PAIRS:
        lines = list(_pair(rows, names, ours, other))
        if lines:
            parts.append(f"## {title}\n\n{_pair_head()}\n" + "\n".join(lines) + "\n")
    parts.append("## Pictures\n\n" + "\n\n".join(f"![{title}]({file})" for title, file in charts.pictures(rows)) + "\n")
    parts.append("## All figures\n")
    parts += [_row(name, rows[name]) for name in names]
    parts.append("## How it was measured\n\n" + "\n".join(_about(name, rows[name]) for name in names) + "\n")
    return "\n".join(parts)


def _pair_head() -> str:
    cells = ["Load", "Penstock", "Kafka", "Penstock ÷ Kafka", "CPU s/GB: Penstock", "Kafka", ""]
    return f"| {' | '.join(cells)} |\n|---|{'--:|' * 5}---|"


def _pair(rows: Rows, names: Sequence[str], ours: str, other: str) -> Iterator[str]:
    for name in names:
        rounds = rows[name]["rounds"]
        if ours not in rounds or other not in rounds:
            continue
        key, share, unit = _figure(rows[name]["unit"])
        found = [spread(rounds[each], key, share) for each in (ours, other)]
        if found[0] is None or found[1] is None:
            continue
        costs = [_shown(spread(rounds[each], "cpu_s_per_gb")) for each in (ours, other)]
        ratio = found[0].middle / found[1].middle if found[1].middle else float("inf")
        cells = [
            rows[name]["title"],
            f"{_shown(found[0])} {unit}",
            f"{_shown(found[1])} {unit}",
            f"{ratio:.2f}",
            *costs,
            _notes([*rounds[ours], *rounds[other]]),
        ]
        yield f"| {' | '.join(cells)} |"


def _figure(unit: str) -> tuple[str, str | None, str]:
    return ("ack_ms", "p99", "ms (p99)") if unit == "ack_p99" else ("mb_s", None, "MB/s")


def _row(name: str, row: dict[str, Any]) -> str:
    lines = [f"### {name}", "", f"{row['title']}.", ""]
    lines.append("| Contender | " + " | ".join(title for title, _, _ in COLUMNS) + " | |")
    lines.append("|---|" + "--:|" * len(COLUMNS) + "---|")
    for who, rounds in row["rounds"].items():
        cells = [_cell(row, who, rounds, key, share) for _, key, share in COLUMNS]
        lines.append(f"| {CONTENDERS[who].title} | {' | '.join(cells)} | {_notes(rounds)} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any], who: str, rounds: Sequence[Figures], key: str, share: str | None) -> str:
    if key == "ready_s":
        return f"{row['ready_s'][who]:.2f}"
    return _shown(spread(rounds, key, share))


def _notes(rounds: Sequence[Figures]) -> str:
    notes = []
    if sum(each["load_is_limit"] for each in rounds) * 2 >= len(rounds):
        notes.append("the load is the limit")
    if is_noisy(rounds):
        notes.append("noisy: others were at work")
    if any("out_mb_s" in each for each in rounds):
        out = spread(rounds, "out_mb_s")
        notes.append(f"{_shown(out)} MB/s out, CPU for both ways")
    if any("ack_alone_ms" in each for each in rounds):
        alone = spread(rounds, "ack_alone_ms", "p99")
        notes.append(f"ack p99 without the replay {_shown(alone)} ms")
    if any(each.get("rate") for each in rounds):
        notes.append(f"{rounds[0]['rate']:,.0f} requests/s")
    return "; ".join(notes)


def _shown(found: Spread | None) -> str:
    if found is None:
        return "–"
    if found.least == found.most:
        return _number(found.middle)
    return f"{_number(found.middle)} ({_number(found.least)}–{_number(found.most)})"


def _number(value: float) -> str:
    """Formats a number with three significant digits, or without decimals from 100 on."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _about(name: str, row: dict[str, Any]) -> str:
    about = row["measured"]
    what = about["machine"]
    rounds = max(len(each) for each in row["rounds"].values())
    versions = ", ".join(sorted({each for each in row["versions"].values() if "loop" not in each}))
    return (
        f"- `{name}`: `{about['command']}`, {about['date']}, commit {about['commit']}, {rounds} rounds of "
        f"{about['seconds']:g} s, warmed {about['warm_s']:g} s; {versions}, {what['java']}, Python {what['python']}; "
        f"{what['cores']} cores ({what['processor']}), {what['memory_gib']} GiB, {what['kernel']}; "
        f"brokers on cores {about['broker_cpus']}, load on {about['load_cpus']}."
    )
