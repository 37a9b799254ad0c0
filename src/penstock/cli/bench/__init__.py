"""`penstock bench`: measures how fast a cluster, Penstock or Apache Kafka, accepts and serves records."""
