"""Packages of npm for the tests, by a pinned lock file, in a folder that later runs find again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

INSTALL_TIMEOUT_S = 300


def installed(pinned: Path) -> Path:
    """Return a folder with the packages of a ``package.json`` and its lock file, and with all neighbouring files.

    The test is skipped if Node or the registry is missing.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node and npm are not here")
    files = sorted(path for path in pinned.iterdir() if path.is_file())
    contents = b"\0".join([path.name.encode() + b"\0" + path.read_bytes() for path in files])
    folder = Path(tempfile.gettempdir()) / f"fsm-agent-npm-{os.getuid()}-{hashlib.sha256(contents).hexdigest()[:16]}"
    if folder.exists() and folder.stat().st_uid == os.getuid():
        return folder
    with tempfile.TemporaryDirectory(prefix="fsm-agent-npm-") as made:
        whole = Path(made) / "whole"
        whole.mkdir(mode=0o700)
        for path in files:
            shutil.copy(path, whole)
        install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        try:
            done = subprocess.run(
                install, cwd=whole, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip("the registry of npm does not answer")
        if done.returncode:
            pytest.skip(f"npm installs nothing here: {done.stderr[-200:]}")
        try:
            whole.rename(folder)  # whole or not at all
        except OSError:  # another process was faster
            assert folder.stat().st_uid == os.getuid()
    return folder
