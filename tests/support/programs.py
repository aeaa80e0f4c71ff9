"""What is tested with a program of the machine, and skipped where it is not installed."""

from __future__ import annotations

import shutil

import pytest

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="the program dot (Graphviz) is not installed")
