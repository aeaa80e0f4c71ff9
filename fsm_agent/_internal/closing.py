"""Objects that are closed at the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Closed at the end of a ``with`` or ``async with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close it under asyncio."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
