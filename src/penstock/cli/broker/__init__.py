"""`penstock broker …`: brokers, their settings, log directories and log levels.

Invariant: settings are changed through the cluster, never in the files of a node.
"""
