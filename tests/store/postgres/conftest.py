"""Tests of other stores that run here with this one."""

from __future__ import annotations

import pytest

BORROWED = "test_workers_over_postgres.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes no store of the module that borrows it: it would be the same test again."""
    again = [item for item in items if item.path.name == BORROWED and "store" not in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=again)
    items[:] = [item for item in items if item not in again]
