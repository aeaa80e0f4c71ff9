"""The pictures of terminals in the documentation: ``PYTHONPATH=tests python tools/terminal_pictures.py`` draws them.

The demo is that of the embedded model; a server on loopback is the model of the chat.
"""

from __future__ import annotations

import html
import io
import re
import sys
from collections.abc import Sequence
from itertools import groupby

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text
from support.paths import ROOT
from support.terminal import replayed_screen, screen_of
from terminal_scenes import ADDS, CTRL_D, MODEL, REMOVES, Act, Scene, at_terminal, says, stage

COLUMNS = 80
_GREY = "#a0a0a0"
SCENES = {
    "demo": Scene([Act("fsm-agent demo")]),
    "chat": Scene(
        [
            Act(
                f"fsm-agent chat {MODEL} --function tools:add --function tools:remove",
                [
                    ("> ", "What is 17 + 25?\n"),
                    ("> ", "Remove notes.txt, please.\n"),
                    ("[y/N]: ", "y\n"),
                    ("> ", "Was it large?\n"),
                    ("> ", "/undo\n"),
                    ("> ", "Thank you.\n"),
                    ("> ", "/draw\n"),
                    ("> ", CTRL_D),
                ],
            )
        ],
        says(ADDS, "17 + 25 is 42.", REMOVES, "notes.txt is removed.", "I cannot say: it is gone.", "You are welcome."),
    ),
}


def picture(name: str) -> str:
    """Play a scene, and return its picture."""
    (act,) = SCENES[name].acts
    with stage(SCENES[name]) as (folder, environment):
        seen, _ = at_terminal(act, folder, environment, columns=COLUMNS)
    return picture_of(act.line, seen, COLUMNS)


def picture_of(command: str, written: str, columns: int) -> str:
    """Return the screen of a terminal as SVG, below the command; it needs no fonts but those that are there."""
    screen = replayed_screen(written, columns)
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


def text_of(picture: str) -> Sequence[str]:
    """Return the lines that a picture shows, without probabilities: they differ from one processor to the next."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text class="terminal-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        lines.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    shown = ["".join([text for _, text in sorted(line)]).rstrip() for _, line in sorted(lines.items())]
    return [re.sub(r"\(0\.\d\d\)", "(0.00)", line) for line in shown]


if __name__ == "__main__":
    for name in sys.argv[1:] or SCENES:
        file = ROOT / "docs" / f"{name}.svg"
        file.write_text(picture(name), "utf-8")
        print(file)
