"""The simulator: the real server on virtual time, with a simulated network, lossy disks, wrong clocks, and faults."""
