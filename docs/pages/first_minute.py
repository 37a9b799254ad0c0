"""Generates docs/pictures/first-minute.svg: a terminal with a real session, `python -m docs.pages.first_minute`.

The commands are run and their output is real. The data directory and times differ from run to run, so no test compares
the picture.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parents[1] / "pictures" / "first-minute.svg"
PENSTOCK = f"{sys.executable} -m penstock"
TYPED = (
    'echo \'{"id": 1, "item": "tea"}\' | penstock produce orders',
    "penstock consume orders -e -f '%t[%p]@%o  %s\\n'",
    "penstock topic list",
    "penstock doctor | head -5",
)
WIDTH = 92


def main() -> None:
    """Runs the session and draws it."""
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for life
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "KAFKA_"))}
    with tempfile.TemporaryDirectory() as directory:
        broker = subprocess.Popen(  # noqa: S603 - fixed arguments
            [*PENSTOCK.split(" "), "dev"], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert broker.stdout is not None
        with broker:
            try:
                _show(console, "penstock dev &", "".join(broker.stdout.readline() for _ in range(5)))
                for typed in TYPED:
                    command = typed.replace("penstock ", f"{PENSTOCK} ", 1 if typed.startswith("penstock") else -1)
                    done = subprocess.run(  # noqa: S603
                        ["/bin/bash", "-c", command],
                        cwd=directory,
                        env=environment,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                        timeout=60,
                        check=True,
                    )
                    _show(console, typed, done.stdout)
            finally:
                broker.terminate()
    drawn = re.sub(
        r"(@font-face \{.*?\}|<!--.*?-->)\s*", "", console.export_svg(title="the first minute"), flags=re.DOTALL
    )
    PICTURE.write_text(drawn, encoding="utf-8")  # without fonts that would have to be downloaded


def _show(console: Console, typed: str, answered: str) -> None:
    console.print(Text("$ ", style="green") + Text(typed, style="bold"))
    console.print(Text(answered))


if __name__ == "__main__":
    main()
