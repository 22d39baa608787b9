"""The substrate (SS-01): nothing an agent proposes touches state or a tool before it has been validated."""
