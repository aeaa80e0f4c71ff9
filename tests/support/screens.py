"""What a person sees of a command: the screen of a terminal as text, with what differs from run to run made equal.

What is put in is as long as what stood there, nearly always, and is put in before a terminal breaks its lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

from support.terminal import ROWS

_COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38;[\d;]+)(?:;\d+)*m")
_GREY = "#a0a0a0"
_ALIKE: Sequence[tuple[re.Pattern[str], str]] = [  # what is found, and the text that is written over it
    (re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}"), "54321"),
    (re.compile(r"/tmp/fsm-[a-z0-9_]{8}(?=/)"), "/tmp/fsm-xxxxxxxx"),
    (re.compile(r"(?<=fsm-agent-demo-)[a-z0-9_]{8}(?=\.svg)"), "xxxxxxxx"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])"), "f" * 64),  # fingerprints
    (re.compile(r"(?<=chat-)[0-9a-f]{8}(?![0-9a-f])"), "12345678"),  # the runs of a chat
    (re.compile(r"(?<=run )[0-9a-f]{8}(?= in )"), "12345678"),
    (re.compile(r"(?<= )(?: \d|\d\d)\.\d(?= s\b)"), " 0.0"),  # in a column
    (re.compile(r"(?<=[ (])\d+\.\d(?= s\b)"), "0.0"),
    (re.compile(r"(?<=[ (])\d+(?= (?:s|ms) ago)"), "0"),
    (re.compile(r"\d{4}-\d\d-\d\d(?=[ T]\d\d:\d\d)"), "2026-11-23"),
    (re.compile(r"(?<=2026-11-23.)\d\d:\d\d:\d\d"), "10:00:00"),
    (re.compile(r"(?<=2026-11-23.)\d\d:\d\d(?!:)"), "10:00"),
    (re.compile(r"(?<=process )\d+"), "12345"),
    (re.compile(r"(?<=worker )\d+"), "12345"),
    (re.compile(r"(?<=fsm-agent )\d+\.\d+\S*"), "1.0"),
]


def alike(text: str) -> str:
    """Return ``text`` with the same times, paths, ports, names and versions whenever it was written."""
    for pattern, instead in _ALIKE:
        text = pattern.sub(instead, text)
    return text


def screen_of(written: str, columns: int) -> str:
    """Return the screen of a terminal on which this was written; behind it, what is left of hidden cursors."""
    screen = _screen(written, columns)
    shown = "\n".join([line.rstrip() for line in screen.display]).strip("\n")
    return f"{shown}\nTHE CURSOR IS HIDDEN" if screen.cursor.hidden else shown


def is_colored(written: str) -> bool:
    """Return True if there is a color in what was written on a terminal."""
    return _COLOR.search(written) is not None


def picture_of(command: str, written: str, columns: int) -> str:
    """Return the screen of a terminal as SVG, below the command; it needs no fonts but those that are there."""
    screen = _screen(written, columns)
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", _GREY), (command, "bold")))
    for row in range(len(screen_of(written, columns).splitlines())):
        line, cells = Text(), [screen.buffer[row][column] for column in range(columns)]
        for (fg, bold, italic), alike_cells in groupby(cells, lambda cell: (cell.fg, cell.bold, cell.italics)):
            color = {"default": None, "brown": "yellow", "brightblack": _GREY}.get(fg, fg)
            text = "".join([cell.data for cell in alike_cells])
            line.append(text, Style(color=color, bold=bold, italic=italic))
        line.rstrip()
        console.print(line, soft_wrap=True)
    local = re.sub(r"@font-face {{.*?}}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    local = local.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
    return console.export_svg(title=command, theme=MONOKAI, code_format=local, unique_id="terminal")


class _DimScreen(pyte.Screen):
    """A screen that shows what is dim in grey."""

    def select_graphic_rendition(self, *attributes: int) -> None:
        super().select_graphic_rendition(*attributes)
        if 2 in attributes:
            self.cursor.attrs = self.cursor.attrs._replace(fg="brightblack")


def _screen(written: str, columns: int) -> Any:
    screen = _DimScreen(columns, ROWS)
    pyte.Stream(screen).feed(alike(written))
    return screen
