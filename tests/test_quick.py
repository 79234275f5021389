"""The order in which `make quick` runs tests: by the chain of imports from each to a changed file."""

from __future__ import annotations

from tests import quick
from tests.quick import distances, imported, nearest, sources

FILES = {
    "crdt_mor/__init__.py": "",
    "crdt_mor/api/table.py": "from crdt_mor.log import (\n    tail,\n    steps as s,\n)\n",
    "crdt_mor/log/tail.py": "",
    "payloads/sets.py": "",
    "tests/log/test_steps.py": "import crdt_mor.log.tail as tail\n",
    "tests/log/test_tail.py": "from crdt_mor.log.tail import Tail\n",
    "tests/model/test_other.py": "from crdt_mor.log.tail import Tail\n",
    "tests/helper.py": "def f():\n    from crdt_mor.api.table import Table\n",
    "tests/test_far.py": "from tests.helper import f\n",
    "tests/test_none.py": "from crdt_mor.payloads import sets  # docs/pages.md\n",
}


def test_imported_yields_each_form_of_import() -> None:
    assert {*imported("from a.b import (\n    c,\n    d as e,\n)\n    import x.y, z\n")} == {
        "a.b",
        "a.b.c",
        "a.b.d",
        "x.y",
        "z",
    }


def test_distances_of_modules_count_imports() -> None:
    assert distances(["a"], {"b": {"a"}, "c": {"b"}, "d": set(), "a": {"c"}}) == {"a": 0, "b": 1, "c": 2}


def test_nearest_of_a_module_prefers_short_chains_names_and_folders() -> None:
    near = ["tests/log/test_tail.py", "tests/log/test_steps.py", "tests/model/test_other.py", "tests/test_far.py"]
    assert nearest(["crdt_mor/log/tail.py"], FILES) == near


def test_nearest_of_a_linked_folder_and_of_a_page_is_the_test_that_names_them() -> None:
    assert nearest(["payloads/sets.py"], FILES) == ["tests/test_none.py"]
    assert nearest(["docs/pages.md"], FILES) == ["tests/test_none.py"]


def test_nearest_of_a_changed_test_is_itself() -> None:
    assert nearest(["tests/test_none.py"], FILES) == ["tests/test_none.py"]


def test_nearest_in_this_tree_begins_with_the_tests_of_the_module() -> None:
    first = nearest(["crdt_mor/columns/names.py"], sources())[:4]
    assert "tests/columns/test_names.py" in first
    assert "tests/test_quick.py" in nearest([quick.__name__.replace(".", "/") + ".py"], sources())
