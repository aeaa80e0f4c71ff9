"""The paths of the project, of its tests, and of optional neighbours."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
SHARED = ROOT.parent / "shared"  # recordings and cases; tests that need them skip where it is not
