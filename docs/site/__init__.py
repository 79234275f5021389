"""What makes the site of the documentation: `make docs` builds it as mkdocs.yml says.

    hooks.py           which files are pages, and where links lead that leave docs/
    docstrings.py      docstrings as Markdown: parameters as a list, names of others as links
    entries.py         what the pages of the reference describe
    style.css          widths, and fonts of the system
    iframe-worker.js   the search on pages that are opened from a disk

The site itself needs nothing from other hosts, so that it can be read without a network.
"""
