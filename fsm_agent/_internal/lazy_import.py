"""How is a heavy library there for whoever needs it, and costs nothing to whoever does not?

    if TYPE_CHECKING:
        import jinja2
    else:
        jinja2 = deferred("jinja2")

The module is imported when the first of its names is asked for; from then on, names cost what those of a module cost.
For libraries only, the standard one included: names of this package are imported as usual.  What many modules use is
deferred at the end of this one, and imported from it.  A regular expression can wait as well: `pattern`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["core_schema", "deferred", "pattern", "pydantic", "pydantic_core", "pydantic_fields", "typing_extensions"]


class Deferred:
    """What is made when it is first used; safe under threads, if making it twice is."""

    def __init__(self, shown: str, make: Callable[[], Any]) -> None:
        self._shown = shown
        self._make = make

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._make(), name)
        setattr(self, name, value)
        return value

    def __repr__(self) -> str:
        return f"<deferred {self._shown}>"


def deferred(module: str) -> Any:
    """The module of this name, not imported yet."""
    return Deferred(f"module {module!r}", partial(import_module, module))


def pattern(regex: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """The regular expression, not compiled yet."""
    made: Any = Deferred(f"pattern {regex!r}", partial(re.compile, regex, flags))
    return made  # type: ignore[no-any-return]


if TYPE_CHECKING:
    import pydantic
    import pydantic.fields as pydantic_fields
    import pydantic_core
    import pydantic_core.core_schema as core_schema
    import typing_extensions
else:
    pydantic, pydantic_core = deferred("pydantic"), deferred("pydantic_core")
    typing_extensions = deferred("typing_extensions")
    pydantic_fields, core_schema = deferred("pydantic.fields"), deferred("pydantic_core.core_schema")
