"""The packages with public names, from the package itself."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import fsm_agent

# Without `fsm_agent.`; a package without a list in its face has no public names.
PACKAGES = [
    name.removeprefix("fsm_agent.")
    for name in [
        *[info.name for info in pkgutil.iter_modules(fsm_agent.__path__, "fsm_agent.") if info.ispkg],
        "fsm_agent.errors",
        "fsm_agent.flows.orchestrator",
    ]
    if "._" not in name and hasattr(import_module(name), "__all__")
]
