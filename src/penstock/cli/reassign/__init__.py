"""`penstock reassign …`: moves replicas between brokers by a plan, throttled, watched to the end.

Invariants: a plan keeps the number of replicas of each partition; settings that were changed for a move are restored.
"""
