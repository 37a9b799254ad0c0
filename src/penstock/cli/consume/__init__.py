"""`penstock consume`: where reading begins, and how records are printed."""
