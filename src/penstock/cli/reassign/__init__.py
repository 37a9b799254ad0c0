"""`penstock reassign …`: moves replicas between brokers by a plan, throttled, watched to the end."""
