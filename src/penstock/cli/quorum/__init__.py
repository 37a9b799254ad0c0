"""`penstock quorum status …`: shows and changes the metadata quorum."""
