"""Runs the pipelines of `penstock.yml`: a session, queries that resume from their checkpoints, and their progress."""
