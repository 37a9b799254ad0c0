"""APIs of topics and settings: metadata, creation, deletion, moves, configurations."""
