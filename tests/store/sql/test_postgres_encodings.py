"""Is a database refused that cannot hold every text?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.postgres import NOT_HERE, PostgresServer, programs

from fsm_agent.store import PostgresStore, StoreError

pytestmark = [pytest.mark.system, pytest.mark.skipif(programs() is None, reason=NOT_HERE)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with closing(PostgresServer()) as server:
        yield server


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_it_is_refused_when_it_is_opened(encoding: str, server: PostgresServer) -> None:
    psycopg = pytest.importorskip("psycopg", reason="the store needs the [postgres] extra")
    name = f"db_{encoding.lower()}"
    with psycopg.connect(server.url().partition("?")[0], autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    address = server.url().replace("/postgres?", f"/{name}?")
    assert name in address
    with pytest.raises(StoreError, match=f"UTF8.*{encoding}"):
        PostgresStore(address)
