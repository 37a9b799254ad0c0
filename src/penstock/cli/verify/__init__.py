"""`penstock verify`: runs a load against any Kafka cluster, and checks that the cluster kept its guarantees."""
