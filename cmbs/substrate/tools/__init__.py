"""What runs the tools: behind the envelope, never before a decision. What a kind of tool needs loads when used."""
