"""`penstock broker …`: brokers, their settings, log directories and log levels."""
