"""The generic runtime of hash-chained streams: cache, writer, group commit and checkpoints. Every plane uses it."""
