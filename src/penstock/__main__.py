"""`python -m penstock` is the command `penstock`, for whoever has an interpreter at hand and not its scripts."""

from penstock.cli.main import main

main()
