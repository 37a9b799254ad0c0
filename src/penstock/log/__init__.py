"""One partition on disk, through the Disk port: segments, indexes, recovery, producer state, epochs, retention."""
