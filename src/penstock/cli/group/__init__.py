"""`penstock group …`: consumer groups, their lag, their rebalances and their offsets."""
