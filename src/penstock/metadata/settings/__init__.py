"""Settings of topics, brokers and groups: names, types, bounds, defaults, where a value comes from, how it is told."""
