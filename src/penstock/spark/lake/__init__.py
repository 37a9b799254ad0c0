"""Writes a topic to a Delta table: tasks write files, the driver commits them, each micro-batch once."""
