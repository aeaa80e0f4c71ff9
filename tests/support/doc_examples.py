"""The Python examples of the README and of docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from support.paths import ROOT

OF_THE_PROJECT = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT")]
PAGES = [*OF_THE_PROJECT, *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)  # and its output


def write_examples(folder: Path) -> Iterator[Path]:
    """Write each example to a separate file, on the lines that it has in its page."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for example in EXAMPLE.finditer(text):
            above = text.count("\n", 0, example.start(1))
            file = folder / f"{page.stem.lower().replace('-', '_')}_{above + 1}.py"
            file.write_text("\n" * above + example[1], "utf-8")
            yield file
