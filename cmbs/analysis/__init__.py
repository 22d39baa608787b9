"""What a trajectory was worth."""
