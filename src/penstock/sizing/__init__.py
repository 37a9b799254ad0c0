"""How large a cluster must be for a load: a pure model over what was measured and simulated."""
