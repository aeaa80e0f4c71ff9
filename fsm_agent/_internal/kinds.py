"""Select the class of a union by the ``kind`` of a JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import pydantic

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


class ByKind:
    """In an `Annotated` union: selects the class by ``kind``.  `pydantic.Discriminator`, without loading pydantic."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return pydantic.Discriminator("kind").__get_pydantic_core_schema__(source, handler)

    def __repr__(self) -> str:
        return "ByKind()"
