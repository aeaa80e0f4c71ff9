"""Prompts by name: registered in code, or read from files.

A prompt's name is ``root/name``: letters, digits, ``_`` and ``-`` between slashes.  It is looked up among the
registered prompts, then as the file ``<directory>/<root>/<name>.jinja``; the files ``<name>.exception.jinja``,
``<name>.interrupt.jinja`` and ``<name>.final.jinja`` beside it are its handlers' templates.  Names are data: none
leads out of the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fsm_agent._internal.spelled_out import spelled_out
from fsm_agent.errors import PromptError
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.template import variables

if TYPE_CHECKING:
    from typing import Unpack

    from fsm_agent.prompts.options import PromptOverrides

T = TypeVar("T")

HANDLERS = ("exception", "interrupt", "final")
SUFFIX = ".jinja"
MAX_FILE_BYTES = 256_000
MAX_LISTED = 20
_NAME = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")
_SHAPE = "letters, digits, '_' and '-', with '/' between them"

_prompts: dict[str, Prompt] = {}


def register_prompt(prompt: Prompt, *, overwrite: bool = False) -> Prompt:
    """Register a prompt under its ``path``, in this process; it takes precedence over files of that name.

    Returns:
        The prompt, so that it can be registered where it is defined.

    Raises:
        PromptError: Its path is not ``root/name``, or belongs to another prompt and ``overwrite`` is False.
    """
    if "/" not in _checked(prompt.path):
        raise PromptError(f"the prompt's path {prompt.path!r} has no root: {'root/' + prompt.path!r} would be right")
    if overwrite:
        _prompts[prompt.path] = prompt
    elif _prompts.setdefault(prompt.path, prompt) is not prompt:
        raise PromptError(f"a prompt is called {prompt.path!r} already: take another path, or overwrite=True")
    return prompt


def registered_prompts() -> dict[str, Prompt]:
    """Return the registered prompts, by path: a copy."""
    return dict(_prompts)


@contextmanager
def scoped_prompts() -> Iterator[None]:
    """Restore the registered prompts at the end; for tests."""
    before = dict(_prompts)
    try:
        yield
    finally:
        _prompts.clear()
        _prompts.update(before)


def packaged_prompts() -> Path:
    """Return the directory of the prompts in this package: within it, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "_prompts"
    return inside if inside.is_dir() else package.parent / "prompts"


class Prompts:
    """The prompts of one root: ``Prompts("demo")("sum")`` is the prompt ``demo/sum``.

    Files are read at every look-up, so an edit takes effect at once.

    Args:
        root: The first part of their names.
        directory: Where the files are.  By default ``prompts`` in the working directory if that holds the root,
            otherwise the package's own.

    Raises:
        PromptError: The root is malformed.
    """

    def __init__(self, root: str, *, directory: str | Path | None = None) -> None:
        self.root = _checked(root)
        self._directory = None if directory is None else Path(directory)

    @property
    def directory(self) -> Path:
        """The directory in which files are looked up now."""
        if self._directory is not None:
            return self._directory
        local = Path("prompts")
        return local if (local / self.root).is_dir() else packaged_prompts()

    @spelled_out(Prompt, without=("template", "path"), is_change=True)
    def __call__(self, name: str, **overrides: Unpack[PromptOverrides]) -> Prompt:
        """Return the prompt ``<root>/<name>``.

        Args:
            name: Letters, digits, ``_`` and ``-``, optionally with ``/`` between them.
            overrides: Values in place of registered ones or those in files: ``functions``, ``output``, ``parser``, …;
                see `Prompt`.

        Raises:
            PromptError: There is none, its files cannot be read, or a template is wrong.
        """
        prompt = self.get(name, **overrides)
        if prompt is None:
            names = self.names()
            close = get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            listed = ", ".join(names[:MAX_LISTED]) + (", …" if len(names) > MAX_LISTED else "")
            places = (
                [self.directory]
                if self._directory
                else dict.fromkeys([Path("prompts").absolute(), self.directory.absolute()])
            )
            origin = f"registered or in {' or '.join([repr(str(path)) for path in places])}"
            raise PromptError(f"no prompt {self._path(name)!r} is {origin}{hint} (there are: {listed or 'none'})")
        return prompt

    @spelled_out(Prompt, without=("template", "path"), is_change=True)
    def get(self, name: str, default: T | None = None, **overrides: Unpack[PromptOverrides]) -> Prompt | T | None:
        """Return the prompt ``<root>/<name>``, or ``default`` when there is none.

        Raises:
            PromptError: The name is malformed, its files cannot be read, or a template is wrong.
        """
        path = self._path(name)
        if (registered := _prompts.get(path)) is not None:
            changes: Any = overrides
            return registered.extend(**changes) if changes else registered
        file = self.directory / f"{path}{SUFFIX}"
        if not file.exists():
            return default
        return load_prompt(file, path=path, within=self.directory, **overrides)

    def names(self) -> list[str]:
        """Return the names of all prompts of the root, in order."""
        prefix = f"{self.root}/"
        names = {path.removeprefix(prefix) for path in _prompts if path.startswith(prefix)}
        for file in (self.directory / self.root).rglob(f"*{SUFFIX}"):
            name = file.relative_to(self.directory / self.root).as_posix().removesuffix(SUFFIX)
            if _NAME.fullmatch(name):
                names.add(name)
        return sorted(names)

    def _path(self, name: str) -> str:
        return f"{self.root}/{_checked(name)}"

    def __repr__(self) -> str:
        return f"Prompts({self.root!r}, directory={str(self.directory)!r})"


def load_prompt(
    file: str | Path, *, path: str | None = None, within: str | Path | None = None, **overrides: Any
) -> Prompt:
    """Return the prompt in a file, with its handlers' files beside it.

    Args:
        file: The template, UTF-8; its name ends in ``.jinja``.  The end of its last line is not part of the prompt;
            blank lines before and after are.
        path: The prompt's path; by default the file's name.
        within: A directory in which the files must lie, symbolic links included.
        overrides: Values in place of those in the files; see `Prompt`.

    Raises:
        PromptError: A file is missing, too large, not UTF-8 or outside of ``within``, or a template is wrong.
    """
    file = Path(file)
    if file.suffix != SUFFIX:
        raise PromptError(f"the prompt file {str(file)!r} does not end in {SUFFIX!r}")
    handlers = {kind: file.with_suffix(f".{kind}{SUFFIX}") for kind in HANDLERS}
    handled = {f"on_{kind}": read_template(other, within) for kind, other in handlers.items() if Path(other).exists()}
    return Prompt(read_template(file, within), **{"path": path or file.stem, **handled, **overrides})


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise PromptError(f"{name!r:.80} is no name of a prompt: {_SHAPE} would be")
    return name


def read_template(file: Path, within: str | Path | None = None) -> str:
    """Return the text of the file, checked as a template."""
    try:
        if within is not None and not file.resolve().is_relative_to(Path(within).resolve()):
            raise PromptError(f"the prompt file {str(file)!r} is a link that leads out of {str(within)!r}")
        if not file.is_file():
            raise PromptError(f"the prompt file {str(file)!r} is missing, or not a regular file")
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, RuntimeError) as error:  # before Python 3.13 a cycle of links is a RuntimeError
        raise PromptError(f"the prompt file {str(file)!r} cannot be read: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise PromptError(f"the prompt file {str(file)!r} is too large: at most {MAX_FILE_BYTES} bytes are read")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise PromptError(f"the prompt file {str(file)!r} is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        variables(text)
    except PromptError as error:
        raise PromptError(f"in the prompt file {str(file)!r}: {error}") from error
    return text.removesuffix("\n")
