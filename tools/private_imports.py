"""Which private names of the package do the tests import?

    python tools/private_imports.py           # exit status 1 for one that tests/private_imports.txt does not allow
    python tools/private_imports.py --write   # writes that file; the reasons behind "#" are kept

Public is what a package lists in `__all__`, and what a module directly below ``fsm_agent`` holds without an underscore.
The list only gets shorter: what a test needs of the inside becomes public in its package, or is reached another way.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOP = "fsm_agent"
ALLOWED = ROOT / "tests" / "private_imports.txt"
DOTTED = re.compile(rf"{TOP}(\.\w+){{2,}}")


@cache
def public_names(module: str) -> frozenset[str] | None:
    """Return the public names of a module; None: any without an underscore is."""
    if module.count(".") == 1 and not hasattr(import_module(module), "__path__") and "._" not in module:
        return None
    return frozenset(getattr(import_module(module), "__all__", ()) if "._" not in module else ())


def is_module(dotted: str) -> bool:
    """Return whether a dotted name is a module of the package."""
    try:
        return find_spec(dotted) is not None
    except ModuleNotFoundError:
        return False


def is_public(module: str, name: str) -> bool:
    """Return whether a test may import the name from the module."""
    if is_module(f"{module}.{name}") and (module == TOP or public_names(f"{module}.{name}")):
        return not name.startswith("_")
    if module == TOP and name not in dir(import_module(TOP)):  # what type checkers must refuse
        return True
    names = public_names(module)
    return not name.startswith("_") if names is None else name in names or name.startswith("__")


def private_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what a file imports or names in a text, such as one for `monkeypatch.setattr`: module and name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == TOP:
            yield from ((node.module, alias.name) for alias in node.names if not is_public(node.module, alias.name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith(f"{TOP}.") and alias.name.count(".") > 1:
                    yield alias.name, "(module)"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            module, _, name = node.value.rpartition(".")
            if is_module(module) and not is_public(module, name):
                yield module, name


def main() -> int:
    """Compare the imports of the tests with the list, or write it."""
    found = {
        f"{path.relative_to(ROOT).as_posix()} {module} {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for module, name in private_names(ast.parse(path.read_text("utf-8")))
    }
    lines = ALLOWED.read_text("utf-8").splitlines() if ALLOWED.exists() else []
    reasons = {line.partition("#")[0].strip(): line for line in lines if line.strip()}
    if "--write" in sys.argv[1:]:
        ALLOWED.write_text("".join(f"{reasons.get(line, line)}\n" for line in sorted(found)), "utf-8")
        return 0
    for line in sorted(found - reasons.keys()):
        print(f"expected a public name, got {line}: import it from its package, or give the reason in {ALLOWED.name}")
    for line in sorted(reasons.keys() - found):
        print(f"no longer needed in {ALLOWED.name}: {line}")
    bare = [line for line in lines if not line.partition("#")[2].strip()]
    for line in bare:
        print(f"expected a reason behind '#' in {ALLOWED.name}, got {line!r}")
    print(f"{len(found)} private imports in tests, {len(reasons)} allowed")
    return 1 if bare or found ^ reasons.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
