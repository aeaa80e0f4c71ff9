"""The commands look as they did at a terminal, and after Ctrl-C anywhere."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec

import pytest
from support.paths import ROOT
from support.terminal import alike, screen_of
from terminal_pictures import SCENES as PICTURED
from terminal_pictures import picture, text_of
from transcripts import FOLDER, SCENES, file_of, transcript

from fsm_agent.clients.local.model import command_to_fetch, find_model

posix = pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX")
needs_model = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_model() is None, reason=f"needs fsm-agent[local]; {command_to_fetch()}"
)
INTERRUPTED = [name for name in SCENES if name.startswith("ctrl-c")]
AGAIN = "they differ; if that is right: PYTHONPATH=tests python tools/transcripts.py --write"


def kept(name: str) -> str:
    return file_of(name).read_text("utf-8").rstrip("\n")


def test_every_scene_has_its_transcript_and_no_other_is_kept():
    assert {path.stem for path in FOLDER.iterdir()} == {*SCENES}


def test_what_was_interrupted_ended_with_130_at_each_of_ten_moments():
    assert len(INTERRUPTED) == 10
    for name in INTERRUPTED:
        shown = file_of(name).read_text("utf-8")
        assert "fsm-agent: interrupted\n[130]\n" in shown
        assert "bug of fsm-agent" not in shown
        assert "THE CURSOR IS HIDDEN" not in shown


@posix
@pytest.mark.nightly
@pytest.mark.timeout(300)  # a scene is as many as six commands, and each imports what it needs
@pytest.mark.parametrize("name", SCENES)
def test_it_looks_as_it_did(name: str):
    assert transcript(name) == kept(name), AGAIN


@posix
@pytest.mark.nightly
@pytest.mark.timeout(300)  # on a busy machine a real model takes its time
@pytest.mark.parametrize("name", ["chat", pytest.param("demo", marks=needs_model)])
def test_the_pictures_in_the_documentation_are_those_that_the_command_draws(name: str):
    shown = text_of((ROOT / "docs" / f"{name}.svg").read_text("utf-8"))
    assert text_of(picture(name)) == shown, (
        "they differ; if that is right: PYTHONPATH=tests python tools/terminal_pictures.py"
    )


@pytest.mark.parametrize("name", PICTURED)
def test_a_picture_loads_nothing_and_shows_its_command(name: str):
    svg = (ROOT / "docs" / f"{name}.svg").read_text("utf-8")
    assert not re.search(r"@font-face|@import|href=|url\((?!#)", svg)
    assert text_of(svg)[0].startswith(f"$ fsm-agent {name}")


def test_what_differs_from_run_to_run_is_made_equal():
    text = "process 77, at 127.0.0.1:40001, for 12.5 s, /tmp/fsm-ab_cd123/here, 2031-01-02 03:04:05 UTC"
    assert alike(text) == (
        "process 12345, at 127.0.0.1:54321, for  0.0 s, /tmp/fsm-xxxxxxxx/here, 2026-11-23 10:00:00 UTC"
    )


def test_a_screen_is_what_is_left_on_it():
    assert screen_of("\x1b[?25lspinning\r\x1b[2Kdone\r\n\x1b[?25h", 20) == "done"
    assert screen_of("one two", 4) == "one\ntwo"
    assert screen_of("x\x1b[?25l", 4) == "x\nTHE CURSOR IS HIDDEN"
