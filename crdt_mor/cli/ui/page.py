"""The page: a single HTML file that contacts no other host and runs only its own scripts.

It contains the report as escaped JSON. The security policy allows only scripts with the right digests, so texts of a
table never run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any, Final

import crdt_mor as mor
from crdt_mor.cli import render

SCRIPTS: Final = ("parts.js", "commits.js", "page.js")
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def html(report: Mapping[str, Any]) -> str:
    plotly, script = plotly_js(), "\n".join(map(_own, SCRIPTS))
    parts = {
        "title": escape(f"{report['overview']['table']}: crdt_mor"),
        "policy": policy(plotly, script),
        "style": _own("page.css"),
        "report": render.as_json(report).translate(_ESCAPED),
        "plotly": plotly,
        "script": script,
    }
    return _PLACE.sub(lambda match: parts[match[1]], _own("page.html"))


def policy(*scripts: str) -> str:
    """Return the policy (W3C, Content Security Policy Level 3): these scripts, and requests to the own server."""
    digests = " ".join(f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'"
    )


def plotly_js() -> str:
    try:
        return resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text("utf-8")
    except ModuleNotFoundError as error:
        raise mor.errors.UnsupportedFeatureError(
            "the page needs plotly for its charts: pip install 'crdt-mor[ui]'"
        ) from error


def _own(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
