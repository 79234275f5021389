"""The site of the documentation, built by `make docs` from mkdocs.yml.

    hooks.py           selects the pages, and mends links that leave docs/
    docstrings.py      turns docstrings into Markdown, with links
    entries.py         lists the entries of the reference
    style.css          sets widths and system fonts
    iframe-worker.js   makes the search work on pages from a disk

The site loads nothing from other hosts, so it works without a network.
"""
