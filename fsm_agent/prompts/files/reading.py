"""Find and read files of prompts, and tell where they were looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fsm_agent.errors import PromptError
from fsm_agent.prompts.template import Joined, Reference, references, variables

SUFFIXES = (".jinja", ".md", ".txt")
MAX_FILE_BYTES = 256_000
MAX_PARTS = 100  # templates that one includes, directly or not
FENCE = "+++"  # the line before and after front matter
_PART = re.compile(r"(?!\.)[A-Za-z0-9_.-]+(/(?!\.)[A-Za-z0-9_.-]+)*")
_YAML = re.compile(r"---[ \t]*\n(?:(?:[A-Za-z_][\w -]*:|[ \t]|-[ \t]|#).*\n|\n)+---[ \t]*(?:\n|\Z)")


class PromptFileProblem(NamedTuple):
    """One thing that is wrong with a file."""

    file: str
    line: int  # from 1; 0: no certain one
    text: str

    def __str__(self) -> str:
        is_named = not self.line or f"in line {self.line}" in self.text
        return f"in the prompt file {self.file!r}: {'' if is_named else f'line {self.line}: '}{self.text}"


class PromptFileError(PromptError):
    """A file of a prompt that cannot be used, with all that is wrong with it."""

    def __init__(self, *problems: PromptFileProblem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Content(NamedTuple):
    """The parts of a file."""

    front: str  # the lines between the fences
    text: str  # the template
    line: int  # the number of lines before the template
    has_front: bool


def package_prompts(package: str) -> tuple[Path, ...]:
    """Return the directories ``prompts`` of an installed package.

    Raises:
        PromptError: There is no such package, or it has none.
    """
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
    """Yield the files of prompts in a directory, and their names there without what they end in."""
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix().removesuffix(file.suffix)
        if file.suffix in SUFFIXES and "/." not in f"/{name}":  # hidden files are those of other programs
            yield file, name


def found(name: str | Path, folders: Iterable[Path], owner: str, advice: str = "") -> Path:
    """Return the first file of this name in the folders.

    Raises:
        PromptError: There is none; the error lists the paths that were searched.
    """
    searched = list(dict.fromkeys([folder / name for folder in folders]))  # an absolute path stays itself
    for path in searched:
        if path.is_file():
            return path
    places = ", ".join([repr(str(path)) for path in searched])
    raise PromptError(f"the template file {str(name)!r} of {owner} is missing; searched: {places}{advice}")


def handler_text(file: Path, owner: str) -> str:
    """Return the template in a file of the working directory.

    Raises:
        PromptError: It is missing, or wrong.
    """
    return read_template(found(file, [Path.cwd()], owner))


def read_template(file: Path) -> str:
    """Return the text of the file, checked as a template, with the templates that it includes from its directory.

    The end of the last line is not part of the template.

    Raises:
        PromptError: It cannot be read, its template is wrong, or it has front matter.
    """
    content = read(file)
    if content.has_front:
        raise PromptFileError(
            PromptFileProblem(
                str(file), 1, f"expected text without front matter ({FENCE}), which only `load_prompt` reads"
            )
        )
    return template_in(content, file)


def read(file: Path, within: str | Path | None = None) -> Content:
    """Return the parts of a file.

    Raises:
        PromptError: It is missing, too large, not UTF-8 or outside of ``within``, or its front matter has no end.
    """
    text = _read_file(file, within)
    if _YAML.match(text):
        raise _problem(file, f"expected front matter in TOML between {FENCE!r} lines, got '---' lines", 1)
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        return Content("", text, 0, has_front=False)
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == FENCE:
            return Content("\n".join(lines[1:number]), "\n".join(lines[number + 1 :]), number + 1, has_front=True)
    raise _problem(file, f"expected the end of the front matter, got none; add a second line {FENCE!r}", 1)


def template_in(content: Content, file: Path, within: str | Path | None = None) -> str:
    """Return the template of a file, with the templates that it includes.

    Raises:
        PromptError: One of them is wrong or missing.
    """
    text = content.text.removesuffix("\n")
    gathering = _Gathering(Path(file.parent if within is None else within))
    gathering.add(text, file, content.line)
    return Joined(text, gathering.parts) if gathering.parts else text


def check_part(name: str) -> None:
    """Refuse the name of a file that is no path below the directory of prompts.

    Raises:
        PromptError: It is none.
    """
    if not _PART.fullmatch(name):
        right = "a path below the folder of prompts, such as '_parts/style.jinja'"
        raise PromptError(f"expected {right}, got {name!r:.80}")


class _Gathering:
    """The search for all templates that one includes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.parts: dict[str, str] = {}
        self.open: list[str] = []  # the files that lead to the present one

    def add(self, text: str, file: Path, before: int) -> None:
        """Check a template, which begins after so many lines of its file, and read those that it includes."""
        self.open.append(str(file))
        try:
            referred = references(text)
            variables(text)
        except PromptError as error:
            syntax = error.__cause__
            line = getattr(syntax, "lineno", None)
            if line is None:
                raise _problem(file, str(error)) from error
            text = f"the template is wrong in line {before + line}: {getattr(syntax, 'message', syntax)}"
            raise _problem(file, text, before + line) from error
        for reference in referred:
            for name in self._there(reference, file, before + reference.line):
                self._include(name, reference, file, before + reference.line)
        self.open.pop()

    def _there(self, reference: Reference, file: Path, line: int) -> list[str]:
        """Return those of the names that are files."""
        if not reference.names:
            raise _problem(file, "expected the name of a template in quotes, got one that is computed", line)
        try:
            for name in reference.names:
                check_part(name)
        except PromptError as error:
            raise _problem(file, str(error), line) from None
        there = [name for name in reference.names if (self.root / name).is_file()]
        if not there and not reference.is_optional:
            places = ", ".join([repr(str(self.root / name)) for name in reference.names])
            raise _problem(file, f"the template {reference.names[0]!r} is missing; searched: {places}", line)
        return there

    def _include(self, name: str, reference: Reference, file: Path, line: int) -> None:
        path = str(self.root / name)
        if path in self.open:
            circle = " -> ".join([*self.open[self.open.index(path) :], path])
            raise _problem(file, f"expected includes without a circle, got {circle}", line)
        if name in self.parts:
            return
        if len(self.parts) >= MAX_PARTS:
            raise _problem(file, f"expected at most {MAX_PARTS} included templates, got more", line)
        part = read(self.root / name, self.root)
        self.parts[name] = part.text.removesuffix("\n") if reference.is_base else part.text
        self.add(self.parts[name], self.root / name, part.line)


def _read_file(file: Path, within: str | Path | None) -> str:
    try:
        if within is not None and not file.resolve().is_relative_to(Path(within).resolve()):
            raise _problem(file, f"expected a file inside {str(within)!r}, got a link that leads out of it")
        if not file.is_file():
            raise _problem(file, "expected a regular file, got none")
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, RuntimeError) as error:  # before Python 3.13 a cycle of links is a RuntimeError
        raise _problem(file, f"it cannot be read: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise _problem(file, f"expected at most {MAX_FILE_BYTES} bytes, got more")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _problem(file, f"expected UTF-8: {error.reason} at byte {error.start}") from None


def _problem(file: Path, text: str, line: int = 0) -> PromptFileError:
    return PromptFileError(PromptFileProblem(str(file), line, text))
