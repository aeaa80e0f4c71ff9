"""Import heavy libraries when they are first used.

    if TYPE_CHECKING:
        import jinja2
    else:
        jinja2 = deferred("jinja2")

The module is imported at the first access to one of its names; later accesses cost the same as those to a module.  Use
it for libraries, including the standard library.  Modules of this package are imported as usual, except for the one
that loads `transitions`, and the codecs, of which a call needs only one.  Libraries that many modules use are deferred
at the end of this module, to be imported from it.  `pattern` defers the compilation of a regular expression.  Objects
that two threads must not make at once are made under the lock `making`, which a fork waits for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

__all__ = [
    "core_schema",
    "deferred",
    "pattern",
    "pydantic",
    "pydantic_core",
    "pydantic_fields",
    "typing_extensions",
]


class Deferred:
    """An object that is made at its first use; thread-safe if making it twice is harmless."""

    def __init__(self, label: str, make: Callable[[], Any]) -> None:
        self._label = label
        self._make = make

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._make(), name)
        setattr(self, name, value)
        return value

    def __reduce__(self) -> tuple[Any, ...]:  # without the cached attributes
        return Deferred, (self._label, self._make)

    def __repr__(self) -> str:
        return f"<deferred {self._label}>"


def first_use(label: str, make: Callable[[], T]) -> T:
    """Return an object that is made at the first use of an attribute; ``make`` returns the same object each time."""
    made: Any = Deferred(label, make)
    return made  # type: ignore[no-any-return]


def deferred(module: str) -> Any:
    """Return the module of this name, not imported yet."""
    return Deferred(f"module {module!r}", partial(import_module, module))


def pattern(regex: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Return the regular expression, not compiled yet."""
    made: Any = Deferred(f"pattern {regex!r}", partial(re.compile, regex, flags))
    return made  # type: ignore[no-any-return]


if TYPE_CHECKING:
    import pydantic
    import pydantic.fields as pydantic_fields
    import pydantic_core
    import typing_extensions
    from pydantic_core import core_schema
else:
    pydantic, pydantic_core = deferred("pydantic"), deferred("pydantic_core")
    typing_extensions = deferred("typing_extensions")
    pydantic_fields, core_schema = deferred("pydantic.fields"), deferred("pydantic_core.core_schema")
