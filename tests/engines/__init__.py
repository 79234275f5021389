"""Other engines read mirrors of tables and must give the rows of `scan()`: see `tests/engines/__main__.py`."""
