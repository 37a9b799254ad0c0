"""APIs of the cluster: versions, brokers, controllers, features, the metadata quorum."""
