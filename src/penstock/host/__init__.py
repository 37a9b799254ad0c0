"""The ports on a real machine: clock, entropy, files, sockets, workers; also a disk in memory, and a lossy one."""
