"""Prompts by name: registered in code, or read from files.

A prompt's name is ``root/name``, where each part consists of letters, digits, ``_`` and ``-``.  Registered prompts are
tried first, then the file ``<directory>/<root>/<name>`` with the suffix ``.jinja``, ``.md`` or ``.txt``.  Files next to
it, such as ``<name>.exception.jinja`` and ``<name>.interrupt.jinja``, contain the templates for the prompt's handlers.
Front matter, which is TOML between two ``+++`` lines, sets the prompt's other fields.  A name can never refer to a file
outside the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

from fsm_agent._internal.registry import Registry
from fsm_agent._internal.text import nearest
from fsm_agent.errors import PromptError, UsageError, hint
from fsm_agent.prompts.files import Loading, Names
from fsm_agent.prompts.prompt import HANDLERS, Prompt, PromptOverrides
from fsm_agent.prompts.template import MAX_FILE_BYTES as MAX_FILE_BYTES
from fsm_agent.prompts.template import (
    SUFFIXES,
    PromptFileError,
    PromptFileProblem,
    file_named,
    files_in,
    package_prompts,
    problem,
    read,
    template_in,
)
from fsm_agent.validation import require

T = TypeVar("T")

MAX_LISTED = 20
_NAME = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")
_MOST = 200  # characters between two slashes: file systems allow 255, including a suffix
_MOST_IN_ALL = 1000
_SHAPE = f"letters, digits, '_' and '-', with '/' between them, at most {_MOST} in a row and {_MOST_IN_ALL} in all"

PROMPTS: Registry[Prompt] = Registry("prompt", PromptError)  # by path


def register_prompt(prompt: Prompt, *, overwrite: bool = False) -> Prompt:
    """Register a prompt under its ``path`` in this OS process.  It takes precedence over files with the same name.

    Returns:
        The prompt, so that you can register it where you define it.

    Raises:
        PromptError: If the prompt's path is not ``root/name``, or if it is taken and ``overwrite`` is False.

    Examples:
        >>> _ = register_prompt(Prompt("Hello, {{ name }}.", path="examples/hello"), overwrite=True)
        >>> Prompts("examples")("hello").variables
        frozenset({'name'})
    """
    require("the prompt to register", prompt, isinstance(prompt, Prompt), "a Prompt('…', path='root/name')")
    if "/" not in _checked(prompt.path):
        right = f"a root, such as {'root/' + prompt.path!r}"
        raise PromptError(f"path of the prompt: expected {right}, got {prompt.path!r}")
    return PROMPTS.register(prompt.path, prompt, overwrite=overwrite)


def packaged_prompts() -> Path:
    """Return the directory that holds this package's prompts.  In a source checkout, it is next to the package."""
    package = Path(__file__).parents[1]
    inside = package / "_prompts"
    return inside if inside.is_dir() else package.parent / "prompts"


class Prompts:
    """The prompts under one root: ``Prompts("demo")("sum")`` is the prompt ``demo/sum``.

    Files are read at every lookup, so edits apply at once.

    Args:
        root: The first part of the prompts' names.  Without a root, names are full paths: ``Prompts()("demo/sum")``.
        directory: One or more directories with prompt files; the prompt is taken from the first one that contains it.
            By default, ``prompts`` in the working directory if it contains the root, otherwise this package's own
            prompts.
        package: The name of a package whose folder ``prompts`` is searched after ``directory``.
        names: Types and functions that front matter may refer to by name.  All other objects are referred to as
            ``module:name``.

    Raises:
        PromptError: If the root is malformed, or the package has no prompts.

    Examples:
        >>> _ = register_prompt(Prompt("Hello, {{ name }}.", path="examples/hello"), overwrite=True)
        >>> Prompts("examples")("hello").template
        'Hello, {{ name }}.'
    """

    def __init__(
        self,
        root: str | None = None,
        *,
        directory: str | Path | Iterable[str | Path] | None = None,
        package: str | None = None,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self.root = "" if root is None else _checked(root)
        folders = [directory] if isinstance(directory, str | Path) else directory or ()
        packaged = () if package is None else package_prompts(package)
        self._directories = (*map(Path, folders), *packaged)
        self._names = Names(names)

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories that are searched now, in order."""
        if self._directories:
            return self._directories
        local = Path("prompts")
        return (local,) if (local / self.root).is_dir() else (packaged_prompts(),)

    def __call__(self, name: str, **overrides: Unpack[PromptOverrides]) -> Prompt:
        """Return the prompt ``<root>/<name>``.

        Args:
            name: Letters, digits, ``_`` and ``-``, optionally with ``/`` between them.
            overrides: Fields of the `Prompt` to replace, such as ``functions``, ``output`` or ``parser``.

        Raises:
            PromptError: If the prompt does not exist, its files cannot be read, or one of them is wrong.
        """
        prompt = self.get(name, **overrides)
        if prompt is None:
            raise self._missing(name)
        return prompt

    def get(self, name: str, default: T | None = None, **overrides: Unpack[PromptOverrides]) -> Prompt | T | None:
        """Return the prompt ``<root>/<name>``, or ``default`` if it does not exist.

        Raises:
            PromptError: If the name is malformed, its files cannot be read, or one of them is wrong.
        """
        path, changes = self._path(name), cast("Any", overrides)
        if (registered := PROMPTS.get(path)) is not None:
            return registered.extend(**changes) if changes else registered
        for folder, file in self._files(path):
            return Loading(file, folder, self._names).prompt(path, changes)
        return default

    def names(self) -> list[str]:
        """Return the sorted names of all prompts under the root, without include files, which begin with ``_``."""
        prefix = f"{self.root}/" if self.root else ""
        names = {path.removeprefix(prefix) for path in PROMPTS if path.startswith(prefix)}
        for folder in self.directories:
            for _, name in files_in(folder / self.root):
                if _NAME.fullmatch(name) and not name.rpartition("/")[2].startswith("_"):
                    names.add(name)
        return sorted(names)

    def file(self, name: str) -> Path | None:
        """Return a prompt's file, or None for a registered or unknown prompt.

        Raises:
            PromptError: If the name is malformed, or a directory has several files for it.
        """
        path = self._path(name)
        return None if path in PROMPTS else next((file for _, file in self._files(path)), None)

    def problems(self) -> list[PromptFileProblem]:
        """Return the first problem in each file under the root, including files that cannot be used as prompts."""
        problems = dict[PromptFileProblem, None]()
        for folder in self.directories:
            for file, name in files_in(folder / self.root):
                try:
                    self._check(file, name, folder)
                except PromptFileError as error:
                    problems[error.problem] = None
        return [*problems]

    def _check(self, file: Path, name: str, folder: Path) -> None:
        """Refuse a file that is neither a prompt, nor a handler for one, nor an include file."""
        stem, dot, kind = name.rpartition(".")
        if name.rpartition("/")[2].startswith("_"):
            template_in(read(file, folder), file, folder)
        elif dot and _NAME.fullmatch(stem):
            if kind not in HANDLERS:
                raise problem(file, f"expected a kind of handler, got {kind!r}{hint(kind, HANDLERS)}")
            if not any((folder / self.root / f"{stem}{suffix}").exists() for suffix in SUFFIXES):
                raise problem(file, f"expected the prompt {stem.split('/')[-1]!r} of this handler, got none")
        elif not _NAME.fullmatch(name):
            raise problem(file, f"name of a prompt: expected {_SHAPE}, got {name!r:.80}")
        else:
            path = f"{self.root}/{name}" if self.root else name
            file_named(path, folder, "file")
            Loading(file, folder, self._names).prompt(path, {})

    def _files(self, path: str) -> Iterator[tuple[Path, Path]]:
        for folder in self.directories:
            if (file := file_named(path, folder, f"file of prompt {path!r}")) is not None:
                yield folder, file

    def _missing(self, name: str) -> PromptError:
        names = self.names()
        close = nearest(name, names)
        meant = f"; did you mean {close!r}?" if close else ""
        listed = ", ".join(names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")
        places = self._directories or (Path("prompts").absolute(), *[path.absolute() for path in self.directories])
        origin = f"registered or in {' or '.join([repr(str(path)) for path in dict.fromkeys(places)])}"
        return PromptError(f"no prompt {self._path(name)!r} is {origin}{meant} (known: {listed or 'none'})")

    def _path(self, name: str) -> str:
        return f"{self.root}/{_checked(name)}" if self.root else _checked(name)

    def __repr__(self) -> str:
        return f"Prompts({self.root!r}, directory={[str(path) for path in self.directories]!r})"


def named_prompt(
    named: str, *, folder: str | Path = "", directory: str | Path | Iterable[str | Path] | None = None
) -> Prompt:
    """Return a prompt, given a ``.jinja``, ``.md`` or ``.txt`` file in ``folder``, or a library name ``root/name``.

    For the directory in which names are looked up, see `Prompts`.

    Raises:
        UsageError: If the prompt does not exist or is wrong.
    """
    if named.endswith(SUFFIXES):
        file = Path(folder) / named
        return Loading(file, None, Names()).prompt(file.stem, {})
    root, slash, name = named.partition("/")
    if not slash:
        raise UsageError(f"expected 'root/name', or a file that ends in {SUFFIXES[0]!r}, got {named!r:.80}")
    return Prompts(root, directory=directory)(name)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > _MOST_IN_ALL or max(map(len, name.split("/"))) > _MOST:
        raise PromptError(f"name of a prompt: expected {_SHAPE}, got {name!r:.80}")
    return name
