"""Lazy public names of a package: each is loaded at its first use, and the error for another name says where it is.

    if TYPE_CHECKING:
        from fsm_agent.messages.reply import Reply as Reply
        from fsm_agent.messages.reply import Usage as Usage
    else:
        __all__, __getattr__, __dir__ = exports(__name__, {"reply": "Reply Usage"})

Type checkers read the imports, which would load all packages below if they ran.  They must not see `__getattr__`, since
they would accept any name then.  `tests/test_exports.py` compares the two lists.  This module imports as little as
possible, since ``import fsm_agent`` imports it.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

PACKAGES = (  # that have public names
    *("agents", "prompts", "messages", "functions", "call", "context", "runtime", "clients"),
    *("providers", "mcp", "telemetry", "store", "errors", "flows", "flows.orchestrator", "web", "workers"),
    *("testing", "diagrams", "cli"),
)
_ROOT = "fsm_agent"
_NEAR = 0.75  # of a name that is imported: a guess that is far off misleads


def exports(
    package: str,
    homes: Mapping[str, str],
    *,
    needs: Mapping[str, str] | None = None,
    former: Mapping[str, str] | None = None,
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its ``__name__``.
        homes: The names, separated by spaces, by the module of the package that has them.
        needs: The extra to install, by the library that some of the names need.
        former: What is right by now, by names that the package had.
    """
    home = {name: f"{package}.{module}" for module, names in homes.items() for name in names.split()}
    public = sorted(home)

    def __getattr__(name: str) -> object:
        if name not in home:
            raise _unknown(package, name, public, former or {})
        try:
            value = getattr(import_module(home[name]), name)
        except ModuleNotFoundError as error:
            library = (error.name or "").partition(".")[0]
            if needs is None or library not in needs:
                raise
            raise ImportError(f"{name} needs {library}; run pip install {needs[library]}", name=library) from error
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public})

    return public, __getattr__, __dir__


def homes_of(name: str) -> list[str]:
    """Return the packages that have a public name; only the root package if it has the name."""
    modules = [import_module(f"{_ROOT}.{package}") for package in PACKAGES]
    has_name = [module.__name__ for module in modules if name in module.__all__]
    return [_ROOT] if name in import_module(_ROOT).__all__ else has_name


def _unknown(package: str, name: str, known: Iterable[str], former: Mapping[str, str]) -> Exception:
    """Return the error for a name that a package does not have.

    For ``from package import name`` Python hides an `AttributeError` behind an `ImportError` of its own.  So a hint
    needs an `ImportError` at once.  Modules of the package get none: Python asks for them here before it loads them.
    """
    if name in former:
        return ImportError(f"cannot import name {name!r} from {package!r}: it is now {former[name]}", name=package)
    plain = AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
    if name.startswith("_") or import_module("importlib.util").find_spec(f"{package}.{name}") is not None:
        return plain
    foreign_names = import_module(f"{_ROOT}.foreign_names")
    if homes := homes_of(name):
        remedy = f": {name} is in {' and '.join(homes)}"
    elif name in foreign_names.IMPORTS:
        remedy = foreign_names.remedy(name)
    else:
        remedy = import_module(f"{_ROOT}._internal.hints").guess(name, known, _NEAR)
    return ImportError(f"cannot import name {name!r} from {package!r}{remedy}", name=package) if remedy else plain
