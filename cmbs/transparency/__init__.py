"""The server's transparency log: signed checkpoints over the heads of all streams, and witnesses of them."""
