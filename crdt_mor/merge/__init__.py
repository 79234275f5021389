"""The merge: what many commits of one key mean together. Knows columns and keys, not files."""
