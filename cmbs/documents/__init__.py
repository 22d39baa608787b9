"""Text with places: YAML, JSON and CSV read for kits and for policies. Pure."""
