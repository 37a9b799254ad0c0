"""Where campaigns record their results."""

from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).parents[3] / "docs" / "results"
