"""Cluster sizing for a load: a pure model over measured and simulated coefficients."""
