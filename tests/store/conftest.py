"""What the tests of stores share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.postgres import NOT_HERE, PostgresServer, programs


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A Postgres server for all tests that do not stop it.  Each test uses a separate schema."""
    if programs() is None:
        pytest.skip(NOT_HERE)
    with closing(PostgresServer()) as server:
        yield server
