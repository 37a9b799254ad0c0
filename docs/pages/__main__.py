"""`./dev pages`: writes the pages of docs/ that are made from the code, and the numbers that a plan works with."""

import os
import sys
from pathlib import Path

from docs.pages import coefficients, configuration, dashboard, metrics, parts, protocol, scale

DOCS = Path(__file__).parents[1]
COEFFICIENTS = "../src/penstock/sizing/coefficients.py"
PAGES = {
    "protocol.md": protocol.page,
    "configuration.md": configuration.page,
    "pictures/parts.svg": parts.picture,
    COEFFICIENTS: coefficients.page,
    "scale.md": scale.page,
    "metrics.md": metrics.page,
    "../deploy/grafana/penstock.json": dashboard.page,
}


def main() -> None:
    """Writes them all."""
    if (DOCS / COEFFICIENTS).read_text(encoding="utf-8") != coefficients.page():
        (DOCS / COEFFICIENTS).write_text(coefficients.page(), encoding="utf-8")
        os.execv(sys.executable, [sys.executable, "-m", "docs.pages"])  # noqa: S606 - this process has the old ones
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
