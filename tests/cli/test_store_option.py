"""What commands show of a store's address."""

from __future__ import annotations

import pytest

from fsm_agent.cli.options import store_option


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        ("runs.db", "--store runs.db"),
        ("my runs.db", "--store 'my runs.db'"),
        ("postgresql://ann:s3c:r@t@db:5/x?schema=s", "--store 'postgresql://ann@db:5/x?schema=s'"),
        ("postgresql://db/x", "--store postgresql://db/x"),
    ],
)
def test_a_command_to_copy_holds_no_password(store: str, shown: str):
    assert store_option(store) == shown
