"""Adapters of pydantic, made once for each type: one for a dataclass of many fields takes milliseconds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pydantic

_MOST = 512  # types; of those made by code there may be any number


def type_adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Return the adapter of a type.

    Raises:
        Exception: Raised by pydantic: it has no JSON.
    """
    try:
        hash(kind)
    except TypeError:  # what is annotated may have no hash
        return pydantic.TypeAdapter(kind)
    adapter = _kept(kind, repr(kind))
    return adapter if adapter.pydantic_complete else pydantic.TypeAdapter(kind)  # its names may be known by now


@lru_cache(_MOST)
def _kept(kind: Any, _: str) -> pydantic.TypeAdapter[Any]:
    """Return the adapter of a type; unions of other orders are equal, but not in writing."""
    return pydantic.TypeAdapter(kind)
