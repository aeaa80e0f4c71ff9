"""The pictures of terminals in the documentation: ``python tests/terminal_pictures.py`` draws them.

The demo is that of the embedded model; a server on loopback is the model of the chat.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Sequence

from support.paths import ROOT
from support.scenes import ADDS, CTRL_D, MODEL, REMOVES, Act, Scene, says
from support.screens import picture_of
from transcripts import at_terminal, stage

COLUMNS = 80
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
