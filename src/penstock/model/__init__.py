"""The nouns: ids, error codes, limits. Knows no other room and nothing of the world."""
