"""`penstock cluster …`: information, health and features of any cluster."""
