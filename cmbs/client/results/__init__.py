"""What a server answers, as frozen types: one module for each part of the API."""
