"""Kafka's protocol: declared messages, a codec compiled from them, frames, and the hot Produce and Fetch path."""
