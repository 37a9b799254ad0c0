"""`penstock sandbox …`: a cluster of real processes on this machine."""
