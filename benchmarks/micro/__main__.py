"""Runs all micro-benchmarks in turn, each in its own process: prints both absolute figures and their ratio.

python -m benchmarks.micro
"""

import argparse
import subprocess
import sys
from pathlib import Path


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for file in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"# benchmarks/micro/{file.name}", flush=True)
        status = subprocess.run([sys.executable, "-m", f"benchmarks.micro.{file.stem}"], check=False).returncode
        if status != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
