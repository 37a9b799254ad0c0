"""Generates docs/pictures/parts.svg: the parts of a node, and the path of a record through them.

The picture has its own background, so that it looks the same on light and dark pages.
"""

from collections.abc import Iterator
from html import escape

WIDTH, HEIGHT = 990, 590
NAMES_WIDTH = 30
"""Horizontal shift of everything but the row names."""
PAPER, INK, FAINT = "#fbfaf6", "#1f2a37", "#5b6775"
CLIENT, SHELL, CORE, PORT, WORLD = "#dfe9f5", "#fde8c8", "#d9efdf", "#e9e2f3", "#ecebe6"
FONT = "font-family=\"'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif\""


def picture() -> str:
    """The SVG."""
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
    tip = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT} role="img">\n',
            "<title>The parts of Penstock</title>\n",
            f'<defs><marker id="tip" {tip}><path d="M0 0 8 4 0 8z" fill="{FAINT}"/></marker></defs>\n',
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="{PAPER}"/>\n',
            *_names(),
            f'<g transform="translate({NAMES_WIDTH} 0)">\n',
            *_clients(),
            *_shell(),
            *_cores(),
            *_worlds(),
            "</g>\n</svg>\n",
        ]
    )


def _names() -> Iterator[str]:
    yield _row_name(28, "what people use")
    yield _row_name(128, "server", "the shell: sockets,", "tasks, order")
    yield _row_name(248, "cores", "they decide; no clock,", "no disk, no socket,", "no thread")
    yield _row_name(390, "ports", "the only doors")
    yield _row_name(468, "two worlds")


def _clients() -> Iterator[str]:
    boxes = (
        ("Kafka clients", "librdkafka, Java, …"),
        ("penstock.Client", "asyncio, blocking"),
        ("penstock", "the command line"),
    )
    for number, (title, text) in enumerate((*boxes, ("pytest", "the fixture kafka"))):
        yield _box(150 + 200 * number, 28, 180, 60, CLIENT, title, text)
        yield _arrow(240 + 200 * number, 88, 240 + 200 * number, 126)
    yield _note(254, 112, "Kafka's wire protocol")


def _shell() -> Iterator[str]:
    yield f'<rect x="140" y="128" width="800" height="92" rx="10" fill="{SHELL}"/>\n'
    steps = (
        ("listener", "limits, bad peers"),
        ("connection", "frames, order"),
        ("dispatch", "API and version"),
        ("handlers", "wire → core → wire"),
        ("upkeep, commit", "rounds of fsync"),
    )
    for number, (title, text) in enumerate(steps):
        yield _box(156 + 156 * number, 146, 140, 56, PAPER, title, text)
        if number < 3:
            yield _arrow(296 + 156 * number, 174, 311 + 156 * number, 174)
    yield _arrow(694, 202, 694, 246)
    yield _arrow(850, 202, 850, 246)
    yield _note(390, 239, "asks a core, and carries out what it answers")


def _cores() -> Iterator[str]:
    yield f'<rect x="140" y="248" width="800" height="112" rx="10" fill="{CORE}"/>\n'
    cores = (
        ("wire", "89 APIs, all", "versions, compiled"),
        ("records", "batches, codecs,", "checks"),
        ("log", "segments, indexes,", "ledger, recovery"),
        ("metadata", "image, controller,", "settings"),
        ("replication", "fetch sessions", ""),
    )
    for number, (title, *texts) in enumerate(cores):
        yield _box(156 + 156 * number, 268, 140, 72, PAPER, title, *texts)
    yield _arrow(540, 360, 540, 388)


def _worlds() -> Iterator[str]:
    for number, name in enumerate(("clock", "disk", "network", "workers", "entropy")):
        yield _box(156 + 156 * number, 390, 140, 40, PORT, name)
    yield _arrow(340, 430, 340, 466)
    yield _arrow(740, 430, 740, 466)
    yield _box(150, 468, 380, 92, WORLD, "host", "files, sockets, sendfile, threads", "what a node runs on")
    yield _box(
        560,
        468,
        380,
        92,
        WORLD,
        "simulator",
        "virtual time, a lossy disk, a lossy network,",
        "faults by seed: the same code, the same node",
    )


def _row_name(y: int, title: str, *texts: str) -> str:
    rows = [f'<text x="22" y="{y + 22}" font-size="14" font-weight="600" fill="{INK}">{escape(title)}</text>\n']
    for number, text in enumerate(texts):
        rows.append(f'<text x="22" y="{y + 40 + 16 * number}" font-size="12" fill="{FAINT}">{escape(text)}</text>\n')
    return "".join(rows)


def _box(x: int, y: int, width: int, height: int, fill: str, title: str, *texts: str) -> str:
    lines = [text for text in texts if text]
    middle = x + width // 2
    top = y + height // 2 + 5 - 8 * len(lines)
    frame = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
    name = f'x="{middle}" y="{top}" font-size="14" font-weight="600" text-anchor="middle"'
    rows = [
        f'<rect {frame} fill="{fill}" stroke="{FAINT}" stroke-opacity=".45"/>\n',
        f'<text {name} fill="{INK}">{escape(title)}</text>\n',
    ]
    for number, text in enumerate(lines, 1):
        place = f'x="{middle}" y="{top + 16 * number}"'
        rows.append(f'<text {place} font-size="12" text-anchor="middle" fill="{FAINT}">{escape(text)}</text>\n')
    return "".join(rows)


def _arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    return f'<path d="M{x} {y} {to_x} {to_y}" stroke="{FAINT}" stroke-width="1.5" marker-end="url(#tip)"/>\n'


def _note(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" font-size="12" font-style="italic" fill="{FAINT}">{escape(text)}</text>\n'
