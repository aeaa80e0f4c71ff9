"""Loads objects that configurations, prompt files and commands name as ``module:name``.

It also reports packages of an extra that are not installed (`needing`).  `fsm_agent.clients.named_clients` finds
clients by name, and `fsm_agent.cli.loading` decides which objects of a module are agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsm_agent._internal.system import module_named, with_place
from fsm_agent._internal.text import guess
from fsm_agent.errors import ConfigError, UsageError


@contextmanager
def needing(extra: str, what: str = "") -> Iterator[None]:
    """Inside the ``with`` block, report a package of an extra that is not installed, with the command that installs it.

    Args:
        extra: The name of the extra.
        what: What needs it, for the message; by default, the extra itself.

    Raises:
        ConfigError: If an import fails.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{what or extra} needs a package that is not installed ({error}); run pip install 'fsm-agent[{extra}]'"
        ) from error


def loaded(named: str, kind: str = "object") -> Any:
    """Return the object that ``module:name`` refers to, after importing its module.

    Args:
        named: The name.
        kind: What the object is, for messages.

    Raises:
        UsageError: If the name is not ``module:name``.
        ConfigError: If the module or name does not exist, or the module cannot be imported.
    """
    module, colon, path = named.partition(":")
    if not (colon and module and path):
        raise UsageError(f"the {kind}: expected 'module:name', got {named!r:.80}")
    return within(imported(module, named), path, named)


def imported(module: str, named: str) -> Any:
    """Import and return a module.  Error messages quote ``named``, the name of the wanted object.

    Raises:
        ConfigError: If the module does not exist or cannot be imported.
    """
    if "/" in module or (module.endswith(".py") and Path(module).is_file()):
        meant = Path(module).stem + (named.removeprefix(module) if named.startswith(f"{module}:") else "")
        raise ConfigError(f"expected a module, got the file {named!r:.80}; pass {meant!r} in the folder of the file")
    if "" in module.split("."):
        raise ConfigError(f"expected 'module' or 'package.module', got {named!r:.80}")
    try:
        return module_named(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # user code may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (module == missing or module.startswith(f"{missing}.")):
            meant = guess(missing, [path.stem for path in Path().glob("*.py")])
            raise ConfigError(
                f"{named!r:.80}: the module {missing!r} is neither in the working directory nor installed{meant}"
            ) from None
        what = with_place(f"{type(error).__name__}: {error}", error)
        raise ConfigError(f"the module of {named!r:.80} cannot be imported: {what}") from error


def within(target: Any, path: str, named: str) -> Any:
    """Return the object at a dotted path inside another object.

    Raises:
        ConfigError: If the object does not exist.
    """
    for name in path.split("."):
        try:
            target = getattr(target, name)
        except AttributeError:
            raise ConfigError(f"{named!r:.80}: {name!r} does not exist there{guess(name, dir(target))}") from None
        except Exception as error:  # from a `__getattr__` or a property
            raise ConfigError(f"{name!r} of {named!r:.80} cannot be read: {type(error).__name__}: {error}") from error
    return target
