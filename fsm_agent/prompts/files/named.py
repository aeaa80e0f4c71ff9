"""Objects that files name: as the caller calls them, or as ``module:name``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fsm_agent._internal.named_modules import module_named
from fsm_agent.errors import PromptError, hint
from fsm_agent.prompts.extraction.first_of import first_of
from fsm_agent.prompts.extraction.parsing import Parser
from fsm_agent.prompts.extraction.strategies import code, json_anywhere, json_block, keyword, regex, tagged, verbatim
from fsm_agent.validation import check, shown

_TYPES: Mapping[str, Any] = {kind.__name__: kind for kind in (str, int, float, bool, dict, list)}
_PARSERS: Mapping[str, Any] = {"json_anywhere": json_anywhere, "json_block": json_block, "verbatim": verbatim}
_MAKERS: Mapping[str, Any] = {"code": code, "keyword": keyword, "regex": regex, "tagged": tagged}
# What a module may raise when it is imported.
_RAISED = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError, RuntimeError),
    *(SyntaxError, SystemExit, TypeError, ValueError, Warning),
)


class Names:
    """The objects that may be named.

    Args:
        names: Objects by name; they go before others of that name.
    """

    def __init__(self, names: Mapping[str, Any] | None = None) -> None:
        right = "a mapping such as {'Order': Order}, or None"
        check("names", names, names is None or isinstance(names, Mapping), right, PromptError)
        self.names: Mapping[str, Any] = names or {}

    def object(self, name: Any, known: Mapping[str, Any] | None = None) -> Any:
        """Return the object of this name.

        Args:
            name: A name that was given, one of ``known``, or ``module:name``.
            known: More objects by name.

        Raises:
            PromptError: The name is unknown, or its module cannot be imported.
        """
        if not isinstance(name, str):
            raise PromptError(f"expected 'module:name', got {shown(name)}")
        both = {**(known or {}), **self.names}
        if name in both:
            return both[name]
        module, colon, path = name.partition(":")
        if not (colon and module and path):
            others = hint(name, both) if both else ""
            raise PromptError(f"expected a known name or 'module:name', got {shown(name)}{others}")
        return _within(_imported(module, name), path, name)

    def type(self, named: Any) -> Any:
        """Return the type of an output: by its name, or the `Literal` of a list of values.

        Raises:
            PromptError: The name is unknown, or the values are not choices.
        """
        if not isinstance(named, list):
            return self.object(named, _TYPES)
        if not named or not all(isinstance(value, str | int) for value in named):
            raise PromptError(f"expected strings or whole numbers, such as ['yes', 'no'], got {shown(named)}")
        return Literal[tuple(named)]

    def parser(self, named: Any) -> Any:
        """Return a parser: by its name, a strategy such as ``{tagged = "answer"}``, or the first of a list that finds.

        Raises:
            PromptError: It names no parser.
        """
        if isinstance(named, list):
            parsers = [self.parser(item) for item in named]
            return first_of(*parsers)
        if isinstance(named, dict):
            if len(named) != 1:
                raise PromptError(f"expected one strategy, such as {{tagged = 'answer'}}, got {shown(named)}")
            [(name, value)] = named.items()
            if name not in _MAKERS:
                raise PromptError(f"expected a strategy, got {name!r}{hint(name, _MAKERS)}")
            words = value if isinstance(value, list) else [value]
            made: Parser[Any] = _MAKERS[name](*words)
            return made
        found = self.object(named, _PARSERS)
        if not callable(found):
            raise PromptError(f"{shown(named)}: expected a parser or a function of the text, got {shown(found)}")
        return found


def _imported(module: str, name: str) -> Any:
    try:
        return module_named(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise PromptError(f"{name!r:.80}: expected a module, got {error.name!r}, which is not found") from None
        raise PromptError(f"the module of {name!r:.80} cannot be imported: {error}") from error
    except _RAISED as error:
        raise PromptError(f"the module of {name!r:.80} cannot be imported: {type(error).__name__}: {error}") from error


def _within(target: Any, path: str, name: str) -> Any:
    for part in path.split("."):
        if not hasattr(target, part):
            words = [word for word in dir(target) if not word.startswith("_")]
            close = hint(part, words)
            raise PromptError(
                f"{name!r:.80}: expected a name in the module, got {part!r}{close if close.startswith(':') else ''}"
            )
        target = getattr(target, part)
    return target
