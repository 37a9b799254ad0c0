"""Settings of topics, brokers and groups: names, types, bounds, defaults, sources of values, descriptions."""
