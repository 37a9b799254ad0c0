"""Messages stored in a log: the records of internal topics, and control records."""
