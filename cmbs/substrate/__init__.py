"""SS-01, the action plane: nothing an agent proposes touches state or a tool before it has been validated."""
