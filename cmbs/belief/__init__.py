"""The belief plane: sessions over a fixed set of hypotheses that can only be eliminated."""
