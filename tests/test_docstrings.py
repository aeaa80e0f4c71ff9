"""Does each public name have an example in its docstring, and is it true?

An example knows the names at the top of the package, the names of its sub-package, and `Script`, `function_call`,
`Pieces` and `token_reply`.
"""

from __future__ import annotations

import ast
import doctest
import typing
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import getdoc, signature
from itertools import pairwise
from pathlib import Path

import pytest
from support.packages import PACKAGES

import fsm_agent
from fsm_agent import testing
from fsm_agent.call import Limits

NAMES = [(package, name) for package in PACKAGES for name in import_module(f"fsm_agent.{package}").__all__]
KNOWN = {name: getattr(fsm_agent, name) for name in fsm_agent.__all__}
KNOWN |= {name: getattr(testing, name) for name in ("Pieces", "Script", "function_call", "token_reply")}
KNOWN |= {"Annotated": typing.Annotated, "Literal": typing.Literal, "__name__": "example"}
SKIPPED = {  # examples that need what is not here, or a class of the reader's own
    *("context.tiktoken_of", "workers.Engine", "diagrams.write_call_diagram", "providers.Codec"),
    *("store.PostgresStore", "testing.ClientConformance", "testing.CodecConformance"),
}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


@cache
def home(package: str, name: str) -> Path:
    """Return the file in which a public name is made."""
    module = import_module(f"fsm_agent.{package}")
    for node in ast.walk(parsed(Path(str(module.__file__)))):
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            return Path(str(import_module(str(node.module)).__file__))
    return Path(str(module.__file__))


def said_behind(package: str, name: str) -> str:
    """Return the text after an assignment, which documents an alias or an object."""
    body = parsed(home(package, name)).body
    for node, following in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        is_it = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if is_it and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return str(following.value.value)
    return ""


def docstring(package: str, name: str) -> str:
    value = getattr(import_module(f"fsm_agent.{package}"), name)
    return said_behind(package, name) or value.__doc__ or ""


@cache
def examples(package: str, name: str) -> doctest.DocTest:
    module = import_module(f"fsm_agent.{package}")
    known = KNOWN | {public: getattr(module, public) for public in module.__all__}
    return doctest.DocTestParser().get_doctest(docstring(package, name), known, f"{package}.{name}", None, 0)


@pytest.fixture
def _registers_nothing() -> Iterator[None]:
    with testing.registries():
        yield


@pytest.mark.system
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.usefixtures("_registers_nothing")
def test_the_examples_of_a_package_are_true(package, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(verbose=False)
    said: list[str] = []
    for name in import_module(f"fsm_agent.{package}").__all__:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runner.run(examples(package, name), out=said.append, clear_globs=False)
    assert not said, "".join(said)


def test_every_public_name_has_an_example():
    without = {f"{package}.{name}" for package, name in NAMES if not examples(package, name).examples}
    assert without == set()
    skipped = {
        f"{package}.{name}"
        for package, name in NAMES
        if all(example.options.get(doctest.SKIP) for example in examples(package, name).examples)
    }
    assert skipped <= SKIPPED


def test_help_explains_each_field_of_the_limits():
    said = getdoc(Limits) or ""
    assert [name for name in signature(Limits).parameters if f"\n    {name}: " not in said] == []
