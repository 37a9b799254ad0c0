"""`penstock cluster decommission`: empties a broker of any cluster, so that it can be stopped for good."""
