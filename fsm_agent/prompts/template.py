"""Templates: reading them from files, checking them, and rendering them with values.

Templates run in Jinja2's immutable sandbox.  Variables are written as ``{{ name }}``, never as ``{name}``, so JSON
needs no escaping.  If variables are missing, the error lists their names.  Only developers' templates are rendered;
text from users and models is never treated as a template.

Jinja2 and `values`, which prints models, dataclasses and enum members, take a while to load, so they are loaded only
for templates and values that need them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fsm_agent._internal.structs import Value
from fsm_agent._internal.text import hint
from fsm_agent.errors import PromptError

if TYPE_CHECKING:
    import jinja2
    import jinja2.nodes

TextGuard: TypeAlias = Callable[[str], str]

_NAME = re.compile(r"(?<!\{)\{\{ *([A-Za-z][A-Za-z0-9_]*) *\}\}")
_SYNTAX = re.compile(r"\{[{%#]|\r")  # \r because Jinja2 turns CR LF into LF
_NO_VARIABLES = frozenset(("true", "false", "none", "self", "super", "loop", "caller", "varargs", "kwargs")) | {
    *("range", "dict", "lipsum", "cycler", "joiner", "namespace")  # Jinja2's globals
}
_PLAIN = frozenset((str, int, float, bool, type(None)))  # printed as in Python


class Joined(str):
    """A template's text, with the templates that it includes, extends or imports, by name."""

    __slots__ = ("_hash", "parts")

    _hash: int
    parts: Mapping[str, str]

    def __new__(cls, text: str, parts: Mapping[str, str]) -> Joined:
        made = super().__new__(cls, text)
        made.parts = parts
        made._hash = hash((text, tuple(sorted(parts.items()))))
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Joined) and str.__eq__(self, other) and self.parts == other.parts

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (str(self), dict(self.parts))


class _Reference(Value, frozen=True):
    """A place in a template that names other templates."""

    line: int
    names: tuple[str, ...]  # the first that exists is used; empty if computed
    is_optional: bool = False
    is_base: bool = False  # whether it is extended


@cache
def _environment() -> jinja2.Environment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        finalize=_printed,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printed(value: Any) -> Any:
    from jinja2 import Undefined

    return value if isinstance(value, Undefined) else _printed_value(value)


def _printed_value(value: Any) -> Any:
    """Return the value's own text, or the value itself if it has none."""
    if type(value) in _PLAIN:
        return value
    # Imported here because it loads pydantic, which most templates do not need, and because it imports this module.
    from fsm_agent.prompts.values import printed

    return printed(value)


@cache
def _guarded_environment(guard: TextGuard) -> jinja2.Environment:
    def printed(value: Any) -> Any:
        text = _printed(value)
        return guard(text) if isinstance(text, str) else text

    return _environment().overlay(finalize=printed)


@lru_cache(maxsize=1024)
def _compiled(template: str, guard: TextGuard | None = None) -> jinja2.Template:
    environment = _guarded_environment(guard) if guard else _environment()
    if isinstance(template, Joined):
        from jinja2 import DictLoader

        environment = environment.overlay(loader=DictLoader(template.parts))
    return environment.from_string(str(template))


@lru_cache(maxsize=1024)
def _pieces(template: str) -> tuple[str, ...] | None:
    """Return strings that alternate with variable names, or None if the template contains any other syntax."""
    pieces = _NAME.split(template)
    if any(map(_SYNTAX.search, pieces[::2])):
        return None
    if any(iskeyword(name) or name in _NO_VARIABLES for name in pieces[1::2]):
        return None
    return tuple(pieces)


@lru_cache(maxsize=1024)
def variables(template: str) -> frozenset[str]:
    """Return the names that ``template`` uses but does not define."""
    if (pieces := _pieces(template)) is not None:
        return frozenset(pieces[1::2])
    from jinja2 import TemplateSyntaxError

    try:
        parts = template.parts if isinstance(template, Joined) else {}
        return frozenset(_needed(str(template), parts, frozenset(), set()))
    except TemplateSyntaxError as error:
        raise _wrong_syntax(template, error) from error
    except RecursionError:
        raise PromptError(f"the template {template[:60]!r} is nested too deeply") from None


def _needed(
    template: str, parts: Mapping[str, str], assigned: frozenset[str], seen: set[tuple[str, frozenset[str]]]
) -> Iterator[str]:
    from jinja2.meta import find_undeclared_variables
    from jinja2.nodes import Name

    tree = _environment().parse(template)
    yield from find_undeclared_variables(tree) - assigned
    if not parts:
        return
    assigned = assigned.union([node.name for node in tree.find_all(Name) if node.ctx == "store"])
    for name in [name for reference in _references(tree) for name in reference.names if name in parts]:
        if (name, assigned) not in seen:
            seen.add((name, assigned))
            yield from _needed(parts[name], parts, assigned, seen)


def _references(tree: jinja2.nodes.Template) -> Iterator[_Reference]:
    """Yield the places where a template includes, extends or imports others, in order."""
    from jinja2 import nodes

    for node in tree.find_all((nodes.Include, nodes.Extends, nodes.Import, nodes.FromImport)):
        named: Any = node.template  # type: ignore[attr-defined]
        items = named.items if isinstance(named, nodes.List | nodes.Tuple) else [named]
        names = [item.value for item in items if isinstance(item, nodes.Const) and isinstance(item.value, str)]
        is_optional = bool(getattr(node, "ignore_missing", False))
        is_base = isinstance(node, nodes.Extends)
        yield _Reference(node.lineno, tuple(names) if len(names) == len(items) else (), is_optional, is_base)


def check_used(template: str, values: Mapping[str, Any]) -> None:
    """Refuse values that ``template`` does not use."""
    used = variables(template)
    for name in sorted(values.keys() - used):
        word = re.escape(name)
        other = re.search(rf"\$?\{{ *{word} *\}}(?!\}})|\$\b{word}\b|%\({word}\)[a-z]|<{word}>|\[{word}\]", template)
        meant = f"; write {{{{ {name} }}}} for {other[0]!r}" if other else hint(name, sorted(used))
        raise PromptError(f"the template {template[:60]!r} uses no variable {name!r}{meant}")


def render(template: str, values: Mapping[str, Any], guard: TextGuard | None = None) -> str:
    """Return ``template`` with ``values`` filled in.

    The guard is a function that makes a value's text harmless.  Always pass the same function object.
    """
    if "{" not in template:
        return template
    needed, pieces = variables(template), _pieces(template)
    try:
        if pieces is None or not needed <= values.keys():
            return _rendered(template, needed, values, guard)
        texts = list(pieces)
        filled_in = [str(_printed_value(values[name])) for name in pieces[1::2]]
        texts[1::2] = map(guard, filled_in) if guard else filled_in
        return "".join(texts)
    except PromptError:  # from an inner template
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise PromptError(f"the template {template[:60]!r} cannot be rendered: {error}") from error


def _rendered(template: str, needed: frozenset[str], values: Mapping[str, Any], guard: TextGuard | None) -> str:
    from jinja2 import TemplateError, UndefinedError

    try:
        return _compiled(template, guard).render(values)
    except TemplateError as error:
        missing = sorted(needed - values.keys()) if isinstance(error, UndefinedError) else ()
        problem = f"cannot be rendered: {error}"
        if missing:
            names = ", ".join(sorted(values)) or "none"
            problem = f"needs the variable(s) {', '.join(missing)}; given: {names}"
        raise PromptError(f"the template {template[:60]!r} {problem}") from error


def attributes(template: str) -> frozenset[tuple[str, str]]:
    """Return the attributes that ``template`` reads from its variables, as `(variable, attribute)` pairs."""
    from jinja2.nodes import Getattr, Name

    found = _environment().parse(template).find_all(Getattr)
    return frozenset([(node.node.name, node.attr) for node in found if isinstance(node.node, Name)])


def names_replaced(template: str, names: Mapping[str, str]) -> str:
    """Return ``template`` with some of its variables renamed."""
    from jinja2 import TemplateSyntaxError

    pieces = []
    before = ""
    try:
        for _, kind, text in _environment().lex(template):
            is_variable = kind == "name" and before != "."
            pieces.append(names.get(text, text) if is_variable else text)
            before = before if kind == "whitespace" else text
    except TemplateSyntaxError as error:
        raise _wrong_syntax(template, error) from error
    return "".join(pieces)


def _wrong_syntax(template: str, error: jinja2.TemplateSyntaxError) -> PromptError:
    return PromptError(f"the template {template[:60]!r} is wrong in line {error.lineno}: {error.message}")


SUFFIXES = (".jinja", ".md", ".txt")
MAX_FILE_BYTES = 256_000
MAX_PARTS = 100  # templates that one may include, directly or indirectly
FENCE = "+++"  # the line before and after front matter
_PART = re.compile(r"(?!\.)[A-Za-z0-9_.-]+(/(?!\.)[A-Za-z0-9_.-]+)*")
_YAML = re.compile(r"---[ \t]*\n(?:(?:[A-Za-z_][\w -]*:|[ \t]|-[ \t]|#).*\n|\n)+---[ \t]*(?:\n|\Z)")


class PromptFileProblem(NamedTuple):
    """A problem in a prompt file."""

    file: str
    line: int  # from 1; 0 if unknown
    text: str

    def __str__(self) -> str:
        is_named = not self.line or f"in line {self.line}" in self.text
        return f"in the prompt file {self.file!r}: {'' if is_named else f'line {self.line}: '}{self.text}"


class PromptFileError(PromptError):
    """Raised for a prompt file that cannot be used, with its first problem."""

    def __init__(self, problem: PromptFileProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Content(NamedTuple):
    """The parts that a prompt file consists of."""

    front: str  # the lines between the fences
    text: str  # the template
    line: int  # the number of lines before the template
    has_front: bool


def package_prompts(package: str) -> tuple[Path, ...]:
    """Return the ``prompts`` directories of an installed package."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError, AttributeError) as error:
        raise PromptError(f"package {package!r}: expected one that can be imported: {error}") from error
    if spec is None or not spec.submodule_search_locations:
        what = "is not installed" if spec is None else "is a module"
        raise PromptError(f"package {package!r}: expected a package with a folder of prompts, got one that {what}")
    searched = [Path(folder, "prompts") for folder in spec.submodule_search_locations]
    if found := [folder for folder in searched if folder.is_dir()]:
        return tuple(found)
    places = ", ".join([repr(str(folder)) for folder in searched])
    raise PromptError(f"package {package!r}: expected a folder of prompts, got none; searched: {places}")


def files_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the prompt files in a directory, each with its relative name without the suffix."""
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix().removesuffix(file.suffix)
        if file.suffix in SUFFIXES and "/." not in f"/{name}":  # hidden files belong to other programs
            yield file, name


def file_named(name: str, folder: Path, what: str) -> Path | None:
    """Return the prompt file in a directory with this name and any suffix, or None.

    Raises:
        PromptError: If several files have this name.
    """
    named = [file for suffix in SUFFIXES if (file := folder / f"{name}{suffix}").exists()]
    if len(named) > 1:
        others = " and ".join([repr(file.name) for file in named])
        raise problem(named[0], f"expected one {what}, got {others}; remove one")
    return named[0] if named else None


def found(name: str | Path, folders: Iterable[Path], owner: str, advice: str = "") -> Path:
    """Return the first file with this name in any of the folders."""
    searched = list(dict.fromkeys([folder / name for folder in folders]))  # an absolute path stays unchanged
    for path in searched:
        if path.is_file():
            return path
    places = ", ".join([repr(str(path)) for path in searched])
    raise PromptError(f"the template file {str(name)!r} of {owner} is missing; searched: {places}{advice}")


def handler_text(file: Path, owner: str) -> str:
    """Return the template in a file, whose name is relative to the working directory."""
    return read_template(found(file, [Path.cwd()], owner))


def read_template(file: Path) -> str:
    """Check a template file, and return its text with the templates that it includes.

    The final line break is not part of the template.

    Raises:
        PromptError: If the file cannot be read, its template is wrong, or it has front matter.
    """
    content = read(file)
    if content.has_front:
        raise problem(file, f"expected text without front matter ({FENCE})", 1)
    return template_in(content, file)


def read(file: Path, within: str | Path | None = None) -> Content:
    """Return the parts of a prompt file, which must be inside ``within``."""
    text = _read_file(file, within)
    if _YAML.match(text):
        raise problem(file, f"expected front matter in TOML between {FENCE!r} lines, got '---' lines", 1)
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        return Content("", text, 0, has_front=False)
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == FENCE:
            return Content("\n".join(lines[1:number]), "\n".join(lines[number + 1 :]), number + 1, has_front=True)
    raise problem(file, f"expected the end of the front matter, got none; add a second line {FENCE!r}", 1)


def template_in(content: Content, file: Path, within: str | Path | None = None) -> str:
    """Return the template in a file, with the templates that it includes."""
    text = content.text.removesuffix("\n")
    gathering = _Gathering(Path(file.parent if within is None else within))
    gathering.add(text, file, content.line, [str(file)])
    return Joined(text, gathering.parts) if gathering.parts else text


class _Gathering:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.parts: dict[str, str] = {}

    def add(self, text: str, file: Path, before: int, trail: list[str]) -> None:
        """Check a template that begins after ``before`` lines of its file, and read the templates that it includes.

        ``trail`` holds the files that led to this one, followed by this one.
        """
        try:
            variables(text)
        except PromptError as error:
            syntax = error.__cause__
            line = getattr(syntax, "lineno", None)
            if line is None:
                raise problem(file, str(error)) from error
            text = f"the template is wrong in line {before + line}: {getattr(syntax, 'message', syntax)}"
            raise problem(file, text, before + line) from error
        for reference in _references(_environment().parse(text)) if "{%" in text else ():
            line = before + reference.line
            for name in self._there(reference, file, line):
                path = self.root / name
                if str(path) in trail:
                    circle = " -> ".join([*trail[trail.index(str(path)) :], str(path)])
                    raise problem(file, f"expected includes without a cycle, got {circle}", line)
                if name in self.parts:
                    continue
                if len(self.parts) >= MAX_PARTS:
                    raise problem(file, f"expected at most {MAX_PARTS} included templates, got more", line)
                part = read(path, self.root)
                self.parts[name] = part.text.removesuffix("\n") if reference.is_base else part.text
                self.add(self.parts[name], path, part.line, [*trail, str(path)])

    def _there(self, reference: _Reference, file: Path, line: int) -> list[str]:
        """Return the existing templates among those that a reference names."""
        if not reference.names:
            raise problem(file, "expected the name of a template in quotes, got one that is computed", line)
        for name in reference.names:
            if not _PART.fullmatch(name):
                right = "a path below the folder of prompts, such as '_parts/style.jinja'"
                raise problem(file, f"expected {right}, got {name!r:.80}", line)
        there = [name for name in reference.names if (self.root / name).is_file()]
        if not there and not reference.is_optional:
            places = ", ".join([repr(str(self.root / name)) for name in reference.names])
            raise problem(file, f"the template {reference.names[0]!r} is missing; searched: {places}", line)
        return there


def _read_file(file: Path, within: str | Path | None) -> str:
    try:
        if within is not None and not file.resolve().is_relative_to(Path(within).resolve()):
            raise problem(file, f"expected a file inside {str(within)!r}, got a link that leads out of it")
        if not file.is_file():
            raise problem(file, "expected a regular file, got none")
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, RuntimeError) as error:  # before Python 3.13 a cycle of links is a RuntimeError
        raise problem(file, f"it cannot be read: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise problem(file, f"expected at most {MAX_FILE_BYTES} bytes, got more")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise problem(file, f"expected UTF-8: {error.reason} at byte {error.start}") from None


def problem(file: Path, text: str, line: int = 0) -> PromptFileError:
    """Return the error to raise for a problem in a prompt file."""
    return PromptFileError(PromptFileProblem(str(file), line, text))
