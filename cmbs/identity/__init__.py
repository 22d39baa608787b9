"""Who may ask: API keys, what they are good for, and the one gate that every request passes."""
