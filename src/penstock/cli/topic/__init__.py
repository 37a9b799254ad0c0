"""`penstock topic …`: creates, shows, changes and deletes topics, and elects leaders."""
