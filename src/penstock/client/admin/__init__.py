"""Admin client: topics, settings, groups, brokers, features, the metadata quorum, partition reassignments."""
