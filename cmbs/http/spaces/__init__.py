"""The HTTP resources of spaces."""
