"""Shared trees and comments of Python files equal the ones of the standard library."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.parsed import comments, nodes, parsed


def test_nodes_of_a_tree_are_the_ones_of_walk() -> None:
    tree = parsed(Path(__file__))
    assert nodes(tree) == tuple(ast.walk(tree))


def test_comments_are_found_beside_strings_that_look_like_them() -> None:
    source = (
        'a = \'# no\' # one\nb = """\n# no \\"""\n# no"""  # two\nc = (r\'\\#\'  # three\n     f"{a[\'#\']}")\n#: four'
    )
    assert list(comments(source)) == [(1, "# one"), (4, "# two"), (5, "# three"), (7, "#: four")]
