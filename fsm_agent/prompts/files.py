"""Builds a prompt from its template, its handlers, and the objects that the front matter names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fsm_agent._internal.structs import from_data
from fsm_agent.errors import PromptError, UsageError, hint
from fsm_agent.foreign_names import WORDS, remedy
from fsm_agent.messages.hosted_tools import HostedTool
from fsm_agent.messages.reply import Settings
from fsm_agent.named_objects import loaded
from fsm_agent.prompts.output import Parser
from fsm_agent.prompts.parsers import (
    ParsingStrategy,
    code,
    first_of,
    json_anywhere,
    json_block,
    keyword,
    regex,
    tagged,
    verbatim,
)
from fsm_agent.prompts.prompt import HANDLERS, Prompt
from fsm_agent.prompts.template import (
    Content,
    PromptFileError,
    file_named,
    problem,
    read,
    template_in,
)
from fsm_agent.validation import require, safe_repr

_TYPES: Mapping[str, Any] = {kind.__name__: kind for kind in (str, int, float, bool, dict, list)}
_PARSERS: Mapping[str, Any] = {"json_anywhere": json_anywhere, "json_block": json_block, "verbatim": verbatim}
_MAKERS: Mapping[str, Any] = {"code": code, "keyword": keyword, "regex": regex, "tagged": tagged}


class Names:
    """The objects that front matter may name.  Names that the caller provides take precedence."""

    def __init__(self, names: Mapping[str, Any] | None = None) -> None:
        right = "a mapping such as {'Order': Order}, or None"
        require("names", names, names is None or isinstance(names, Mapping), right, PromptError)
        self.names: Mapping[str, Any] = names or {}

    def object(self, name: Any, known: Mapping[str, Any] | None = None) -> Any:
        """Return the object with this name: a name from the caller, a name in ``known``, or ``module:name``."""
        if not isinstance(name, str):
            raise PromptError(f"expected 'module:name', got {safe_repr(name)}")
        both = {**(known or {}), **self.names}
        if name in both:
            return both[name]
        if ":" not in name:
            others = hint(name, both) if both else ""
            raise PromptError(f"expected a known name or 'module:name', got {safe_repr(name)}{others}")
        return loaded(name)

    def type(self, named: Any) -> Any:
        """Return an output type, given its name or a list of values for a `Literal`."""
        if not isinstance(named, list):
            return self.object(named, _TYPES)
        if not named or not all(isinstance(value, str | int) for value in named):
            raise PromptError(f"expected strings or whole numbers, such as ['yes', 'no'], got {safe_repr(named)}")
        return Literal[tuple(named)]

    def parser(self, named: Any) -> Any:
        """Return a parser, given its name, a strategy such as ``{tagged = "answer"}``, or a list for `first_of`."""
        if isinstance(named, list):
            parsers = [self.parser(item) for item in named]
            return first_of(*parsers)
        if isinstance(named, dict):
            if len(named) != 1:
                raise PromptError(f"expected one strategy, such as {{tagged = 'answer'}}, got {safe_repr(named)}")
            [(name, value)] = named.items()
            if name not in _MAKERS:
                raise PromptError(f"expected a strategy, got {name!r}{hint(name, _MAKERS)}")
            words = value if isinstance(value, list) else [value]
            made: Parser[Any] = _MAKERS[name](*words)
            return made
        found = self.object(named, _PARSERS)
        require(safe_repr(named), found, callable(found), "a parser or a function of the text", PromptError)
        return found


KEYS = tuple([item.name for item in fields(Prompt) if item.init and item.name not in ("template", "path")])
_KINDS = ("web_search", "code_execution", "computer_use", "mcp")
_LINE = re.compile(r"\(at line (\d+), column \d+\)$")


class Loading:
    """Builds a prompt from its files.

    Args:
        file: The file with the template.
        within: The directory that must contain all files; by default, the file's directory.  Names are relative to it.
        names: The objects that front matter may name.
    """

    def __init__(self, file: Path, within: Path | None, names: Names) -> None:
        self.file, self.within, self.names = file, within, names
        self.values: dict[str, Any] = {}  # by `Prompt` argument
        self._front: list[str] = []

    def prompt(self, path: str, overrides: Mapping[str, Any]) -> Prompt[Any]:
        """Return the prompt, or raise an error with the file and line of the first problem."""
        content = read(self.file, self.within)
        self._take(content, overrides)
        template = template_in(content, self.file, self.within)
        for kind in HANDLERS:
            if f"on_{kind}" not in overrides:
                self._take_handler_beside(kind)
        try:
            return Prompt(template, **{"path": path, **self.values, **overrides})
        except UsageError as error:
            if overrides:
                raise
            raise problem(self.file, str(error)) from error

    def _keep(self, key: str, make: Callable[[], Any], file: Path, line: int) -> None:
        try:
            made = make()
            Prompt("", **{"functions": self.values.get("functions", ()), key: made})  # refuses a wrong value
        except PromptFileError:
            raise
        except UsageError as error:
            raise problem(file, _told(key, error), line) from error
        self.values[key] = made

    def _take_handler_beside(self, kind: str) -> None:
        key = f"on_{kind}"
        file = file_named(f"{self.file.stem}.{kind}", self.file.parent, f"handler {key}")
        if file is None:
            return
        if key in self.values:
            text = f"{key}: expected it once, got it in the file {file.name!r} as well; remove one"
            raise problem(self.file, text, self._line(key))
        self._keep(key, lambda: self._handler_in(file), file, 0)

    def _handler_in(self, file: Path) -> Any:
        """Return the handler in a file: a prompt if the file has front matter, otherwise the file's text."""
        content = read(file, self.within)
        if not content.has_front:
            return template_in(content, file, self.within)
        return Loading(file, self.within, self.names).prompt("", {})

    # Front matter

    def _take(self, content: Content, overrides: Mapping[str, Any]) -> None:
        import tomllib

        self._front = content.front.split("\n")
        try:
            data = tomllib.loads(f"\n{content.front}\n")  # keeps the file's line numbers
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            found = _LINE.search(str(error))
            text = f"expected front matter in TOML: {_LINE.sub('', str(error)).strip()}"
            raise problem(self.file, text, int(found[1]) if found else 0) from None
        for key in sorted(data, key=lambda key: key != "functions"):  # handlers may only offer functions of the prompt
            line = self._line(key)
            if key not in KEYS:
                raise problem(self.file, f"expected a known key, got {key!r}{self._meant(key)}", line)
            if key not in overrides:
                self._keep(key, partial(self._value, key, data[key]), self.file, line)
        parser, output = self.values.get("parser"), self.values.get("output", str)
        if isinstance(parser, ParsingStrategy) and output is not str:
            self.values["parser"] = first_of(parser, expect=output)

    def _meant(self, key: str) -> str:
        return remedy(key, KEYS, {**WORDS, **{kind: f"on_{kind}=…" for kind in HANDLERS}})

    def _line(self, key: str, after: int = 0) -> int:
        written = re.compile(rf"""\s*(\[+\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
        for number, line in enumerate(self._front[after:], after + 2):
            if written.match(line):
                return number
        return 0

    def _value(self, key: str, value: Any) -> Any:
        if key == "output":
            return self.names.type(value)
        if key == "parser":
            return self.names.parser(value)
        if key == "functions":
            return tuple(map(self._function, _listed(value)))
        if key == "hosted_tools":
            return tuple(map(self._hosted, _listed(value)))
        if key == "settings":
            return self._settings(value)
        if key.startswith("on_"):
            return self._handler(value)
        return value

    def _function(self, name: Any) -> Any:
        found = self.names.object(name)
        if not (callable(found) or hasattr(type(found), "functions") or hasattr(type(found), "as_function")):
            right = "a function, a toolset, an agent or an MCP server"
            raise PromptError(f"{safe_repr(name)}: expected {right}, got {safe_repr(found)}")
        return found

    def _hosted(self, item: Any) -> Any:
        if isinstance(item, str) and item not in _KINDS:
            return self.names.object(item, {kind: kind for kind in _KINDS})
        try:
            return from_data({"kind": item} if isinstance(item, str) else item, HostedTool)
        except ValueError as error:  # no cause and no input: a hosted tool may hold a key
            kinds = f"; kinds: {', '.join(_KINDS)}" if "kind" in str(error) else ""
            raise PromptError(f"{error}{kinds}") from None

    def _settings(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise PromptError(f"expected a table such as [settings], got {safe_repr(value)}")
        start = max(self._line("settings") - 1, 0)
        for name, item in value.items():
            try:
                if name == "hosted_tools":
                    raise UsageError("hosted_tools: expected it outside of settings; move it to a key of its own")
                Settings().override({name: item})
                from_data({name: item}, Settings)
            except ValueError as error:
                line = self._line(name, start) or self._line("settings")
                raise problem(self.file, _told("settings", error), line) from None
        made = from_data(value, Settings)  # with tuples
        return {name: getattr(made, name) if isinstance(item, list) else item for name, item in value.items()}

    def _handler(self, value: Any) -> Any:
        """Return a handler, given a template or a table that names a function."""
        if isinstance(value, str):
            return value
        if not isinstance(value, dict) or list(value) != ["function"]:
            raise PromptError(f"expected text or {{function = 'module:name'}}, got {safe_repr(value)}")
        return self.names.object(value["function"])


def _told(key: str, error: Exception) -> str:
    text = str(error)
    return text if text.startswith(key) else f"{key}: {text}"


def _listed(value: Any) -> list[Any]:
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list):
        raise PromptError(f"expected a list such as ['module:name'], got {safe_repr(value)}")
    return value
