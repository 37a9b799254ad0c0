"""The real world behind the ports: clock, entropy, files, sockets, workers; a disk in memory, and a lossy one."""
