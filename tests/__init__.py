import pytest

# Before anything imports it: its failures are explained like those of tests.
pytest.register_assert_rewrite("crdt_mor.testing.store_suite")
