"""APIs of topics and settings: metadata, creation, deletion, moves, configurations.

Invariant: topics, and the settings of the cluster, are changed by the active controller only.
"""
