"""`python -m penstock` runs the command `penstock` where its script is not on the path."""

from penstock.cli.main import main

main()
