"""`./dev pages`: writes the pages of docs/ that are generated from code, and the coefficients of `penstock size`."""

import os
import sys
from pathlib import Path

from docs.pages import client_reference, coefficients, configuration, dashboard, logs, metrics, parts, protocol, scale

DOCS = Path(__file__).parents[1]
COEFFICIENTS = "../src/penstock/sizing/coefficients.py"
PAGES = {
    "protocol.md": protocol.page,
    "client-reference.md": client_reference.page,
    "configuration.md": configuration.page,
    "pictures/parts.svg": parts.picture,
    COEFFICIENTS: coefficients.page,
    "scale.md": scale.page,
    "metrics.md": metrics.page,
    "operating/logs.md": logs.page,
    "../deploy/grafana/penstock.json": dashboard.page,
}


def main() -> None:
    """Writes all pages."""
    if (DOCS / COEFFICIENTS).read_text(encoding="utf-8") != coefficients.page():
        (DOCS / COEFFICIENTS).write_text(coefficients.page(), encoding="utf-8")
        os.execv(sys.executable, [sys.executable, "-m", "docs.pages"])  # noqa: S606 - this process has the old ones
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
