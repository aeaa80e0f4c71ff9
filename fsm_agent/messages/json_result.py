"""What the results of calls and flows have in common: they become JSON data, for a web framework as well."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from fsm_agent.messages.event_schemas import result_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema


class JsonResult:
    """A base for results: pydantic writes them as `to_dict` has them, so that FastAPI returns them as they are."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        written = core_schema.plain_serializer_function_ser_schema(lambda result: result.to_dict())
        return core_schema.is_instance_schema(cls, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return result_schema()
