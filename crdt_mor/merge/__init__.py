"""The merge kernel: folds all contributions of a key into one row. It knows columns and keys, not files."""
