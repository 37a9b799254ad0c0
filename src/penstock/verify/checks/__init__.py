"""One file per family of checks; each finds anomalies in the index, the event stream or replica logs."""
