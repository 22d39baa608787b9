"""What the server is compared with."""
