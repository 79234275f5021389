"""The object store that a test runs against."""

from __future__ import annotations

import pytest

from tests import servers
from tests.tiers import slow


@pytest.fixture(params=["s3", slow("azure")])
def server(request: pytest.FixtureRequest) -> servers.Server:
    """Each kind of server; Azure in the slow tier."""
    server: servers.Server = servers.SERVERS[request.param]()
    return server
