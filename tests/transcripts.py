"""The transcripts of the commands: ``python tests/transcripts.py --write`` plays them anew, and a test compares.

Each scene is played at a terminal of 80 columns, and with pipes; its transcripts are in a file of
``tests/cli/transcripts``.  The model is a server on loopback.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.paths import TESTS
from support.scenes import CONTINUE, FILES, SCENES, Act, Scene
from support.screens import alike, is_colored, screen_of
from support.terminal import ENVIRONMENT, LAUNCH, LEFT_IN_DISORDER, LIMIT_S, Terminal

FOLDER = TESTS / "cli" / "transcripts"
WAYS = ("80 columns", "piped")
_CONTINUES = re.compile(r"to continue: (fsm-agent [^\r\n]*)")
_SECRETS = ("OPENAI_", "ANTHROPIC_", "GEMINI_", "GOOGLE_", "HF_", "COLUMNS", "NO_COLOR", "FORCE_COLOR")


def transcript(name: str, way: str) -> str:
    """Play a scene, and return what was seen."""
    with stage(SCENES[name]) as (folder, environment):
        seen, played = "", list[str]()
        for act in SCENES[name].acts:
            if act.line == CONTINUE:
                printed = _CONTINUES.findall(re.sub(r"\x1b\[[\d;]*m", "", seen))
                assert printed, f"no command goes on with it: {seen}"
                act = act._replace(line=printed[-1])
            if way == "piped":
                seen, shown = _piped(act, folder, environment)
            else:
                seen, shown = at_terminal(act, folder, environment, columns=int(way.split()[0]))
            played.append(f"$ {alike(act.line)}\n{shown}")
    return "\n\n".join(played)


def uncolored(name: str) -> str:
    """Play a scene at a terminal of 80 columns with ``NO_COLOR``, and return what was seen.

    Raises:
        AssertionError: There was a color.
    """
    with stage(SCENES[name]) as (folder, environment):
        played = list[str]()
        for act in SCENES[name].acts:
            seen, shown = at_terminal(act, folder, {**environment, "NO_COLOR": "1"}, columns=80)
            assert not is_colored(seen), seen
            played.append(f"$ {alike(act.line)}\n{shown}")
    return "\n\n".join(played)


@contextmanager
def stage(scene: Scene) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder with the files of all scenes, and the environment that leads to its server."""
    with tempfile.TemporaryDirectory(prefix="fsm-", dir="/tmp") as name, scene.server() as server:
        folder = Path(name) / "here"
        for path, text in FILES.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text.lstrip("\n"))
        environment = {
            key: value
            for key, value in ENVIRONMENT.items()
            if not key.startswith(_SECRETS) and not key.endswith(("_API_KEY", "_TOKEN", "_BASE_URL", "_ENDPOINT"))
        }
        environment |= {
            "OPENAI_BASE_URL": server.base_url,
            "OPENAI_API_KEY": "sk-of-the-transcripts",
            "HF_HOME": f"{name}/hub",
            "HF_ENDPOINT": server.base_url.removesuffix("/v1"),
            "TMPDIR": name,
            "LC_ALL": "C.UTF-8",
            "USER": "ann",
            "LOGNAME": "ann",
        }
        yield folder, environment


def at_terminal(act: Act, folder: Path, environment: dict[str, str], *, columns: int) -> tuple[str, str]:
    """Return all that was written, and the screen and the status."""
    words = shlex.split(act.line)[1:]
    with Terminal(*words, program=act.program, columns=columns, folder=folder, environment=environment) as terminal:
        for text, keys in act.keys:
            if text:
                terminal.read_until(text)
            terminal.type(keys)
        terminal.read_until()
        status = terminal.process.wait(LIMIT_S)
        assert LEFT_IN_DISORDER not in terminal.seen, terminal.seen
        return terminal.seen, f"{screen_of(terminal.seen, columns)}\n[{status}]"


def _piped(act: Act, folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    ended = subprocess.run(
        [sys.executable, "-c", LAUNCH, *shlex.split(act.line)[1:]],
        env=environment,
        cwd=folder,
        input=act.piped,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    told = "".join([f"2> {line}\n" for line in alike(ended.stderr).splitlines()])
    return ended.stdout + ended.stderr, f"{alike(ended.stdout)}{told}[{ended.returncode}]"


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.txt"


def whole(name: str) -> str:
    """Return the transcripts of a scene, as they are kept."""
    return "\n\n".join([f"{f' {way} ':=^80}\n\n{transcript(name, way)}" for way in ways_of(name)]) + "\n"


def ways_of(name: str) -> Sequence[str]:
    """Return the ways in which a scene is played: Ctrl-C is typed at terminals only."""
    return WAYS[:1] if name.startswith("ctrl-c") else WAYS


def kept(name: str, way: str) -> str:
    """Return the transcript that is kept."""
    return file_of(name).read_text("utf-8").partition(f"{f' {way} ':=^80}\n\n")[2].partition("\n\n====")[0].rstrip("\n")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit("python tests/transcripts.py --write [SCENE …]")
    for name in sys.argv[2:] or SCENES:
        file_of(name).write_text(whole(name), "utf-8")
        print(os.path.relpath(file_of(name)))
