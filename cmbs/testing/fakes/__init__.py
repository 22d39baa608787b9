"""A clock and ids that tests own, stores that fail on demand, and threads that report their errors."""
