"""Text from outside as trees of values with places: YAML, JSON and CSV, read once for kits and for policies."""
