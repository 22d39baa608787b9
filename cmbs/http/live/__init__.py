"""Live follow: what is written to streams as server-sent events."""
