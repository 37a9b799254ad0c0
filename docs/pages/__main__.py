"""`./dev pages`: writes the pages of docs/ that are made from the code."""

from pathlib import Path

from docs.pages import configuration, parts, protocol

DOCS = Path(__file__).parents[1]
PAGES = {"protocol.md": protocol.page, "configuration.md": configuration.page, "pictures/parts.svg": parts.picture}


def main() -> None:
    """Writes them all."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
