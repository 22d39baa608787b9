"""Reading policies: lint, policy tests, explanation, smallest change and impact."""
