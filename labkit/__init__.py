"""labkit: caches and mixers that give the same answer however the sequence is cut."""
