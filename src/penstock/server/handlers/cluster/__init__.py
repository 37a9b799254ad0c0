"""APIs of the cluster: versions, brokers, controllers, features, the metadata quorum.

Invariant: brokers, features and voters are changed by the active controller only.
"""
