"""References to variables of the environment, in the texts of a configuration: ``${VAR}`` and ``${VAR:-default}``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL)


def expanded(text: str, environment: Mapping[str, str], label: str = "") -> str:
    """Return ``text`` with its references replaced by the values of variables.

    Args:
        text: ``${VAR}`` (or ``${env:VAR}``) is replaced by the variable, ``${VAR:-default}`` by the default if it is
            missing or empty.
        environment: The variables.
        label: The name of the text, for messages; empty: the caller adds it.

    Raises:
        ValueError: A reference is malformed, or its variable is missing; the message holds no values.
    """
    return _REFERENCE.sub(lambda match: _value(match[1], environment, label), text)


def referenced(text: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of the variables that a text refers to."""
    for reference in _REFERENCE.findall(text):
        match = _VARIABLE.fullmatch(reference)
        if match is not None and match[1] in environment:
            yield environment[match[1]]


def has_reference(text: object) -> bool:
    """Return whether ``text`` is a string with a reference."""
    return isinstance(text, str) and _REFERENCE.search(text) is not None


def _value(reference: str, environment: Mapping[str, str], label: str) -> str:
    match = _VARIABLE.fullmatch(reference)
    owner = f" for {label}" if label else ""
    if match is None:
        raise ValueError(f"expected ${{VARIABLE}} or ${{VARIABLE:-default}}{owner}, got ${{{reference:.80}}}")
    name, has_default, default = match.groups()
    if has_default:
        return environment.get(name) or str(default)
    if name not in environment:
        raise ValueError(f"the environment variable {name!r}{owner} is not set; set it, or write ${{{name}:-…}}")
    return environment[name]
