"""APIs of groups: members, committed offsets, administration, finding a coordinator."""
