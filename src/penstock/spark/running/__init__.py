"""Runs the pipelines of `penstock.yml`: a session, queries that go on from their checkpoints, and how far they are."""
