"""The HTTP resources of belief sessions."""
