"""Do workers share out runs and leave well over Postgres, as over other stores?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from support.postgres import NOT_HERE, PostgresServer, programs
from workers.test_pool import TestDraining, TestUnderAsyncio  # noqa: F401  # with another store

from fsm_agent.store import PostgresStore

pytestmark = [pytest.mark.system, pytest.mark.skipif(programs() is None, reason=NOT_HERE)]
_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def store(server: PostgresServer) -> Iterator[Any]:
    with closing(PostgresStore(server.url(f"workers_{next(_numbers)}"))) as store:
        yield store
