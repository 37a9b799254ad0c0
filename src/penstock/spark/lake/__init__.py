"""A topic as a Delta table: files written by tasks, committed by the driver, each micro-batch once."""
