"""Where things are: the project, its tests, and what only some machines have beside it."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
SHARED = ROOT.parent / "shared"  # recordings and cases; tests that need them skip where it is not
