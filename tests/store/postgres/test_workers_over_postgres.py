"""Do workers work over Postgres as they do over other stores?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from agents.test_workers import (  # noqa: F401  # their tests, with the store of this module
    TestConcurrency,
    TestDraining,
    TestUnderAsyncio,
    TestVersionsSideBySide,
    idles_shortly,
)
from support.postgres import NOT_HERE, PostgresServer, programs

pytestmark = pytest.mark.system

pytest.importorskip("psycopg", reason="psycopg is not installed")
if programs() is None:
    pytest.skip(NOT_HERE, allow_module_level=True)

_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def store(server: PostgresServer) -> Iterator[Any]:
    from fsm_agent.store.postgres import PostgresStore

    store = PostgresStore(server.url(f"workers_{next(_numbers)}"))
    yield store
    store.close()
