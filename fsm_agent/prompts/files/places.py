"""The folders of prompts, and the files in them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fsm_agent.errors import PromptError
from fsm_agent.prompts.files.reading import SUFFIXES


def package_prompts(package: str) -> tuple[Path, ...]:
    """Return the directories ``prompts`` of an installed package.

    Raises:
        PromptError: There is no such package, or it has none.
    """
    try:
        spec = find_spec(package)
    except (ImportError, ValueError, AttributeError) as error:
        raise PromptError(f"the package {package!r} is not there: {error}") from error
    if spec is None or not spec.submodule_search_locations:
        what = "is not installed" if spec is None else "is a module, which has no folder"
        raise PromptError(f"the package {package!r} {what}")
    searched = [Path(folder, "prompts") for folder in spec.submodule_search_locations]
    if found := [folder for folder in searched if folder.is_dir()]:
        return tuple(found)
    places = ", ".join([repr(str(folder)) for folder in searched])
    raise PromptError(f"the package {package!r} has no folder of prompts; searched: {places}")


def files_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of prompts in a directory, and their names there without what they end in."""
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix().removesuffix(file.suffix)
        if file.suffix in SUFFIXES and "/." not in f"/{name}":  # hidden files are those of other programs
            yield file, name
