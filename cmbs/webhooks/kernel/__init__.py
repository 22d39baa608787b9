"""What is decided about webhooks. Pure."""
