"""Do type checkers take every example of the README, of docs and of examples?"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.doc_examples import write_examples
from support.paths import ROOT
from support.type_checkers import mypy, pyright, with_mypy, with_pyright

# Their functions are annotated where it helps a reader: no configuration of ours, and not strict.
AS_USERS_BEGIN = ("--config-file=", "--check-untyped-defs")
SCRIPTS = sorted((ROOT / "examples").rglob("*.py"))


@pytest.fixture
def examples(tmp_path: Path) -> list[Path]:
    written = list(write_examples(tmp_path))
    assert len(written) >= 30
    return written


@pytest.mark.nightly
@pytest.mark.timeout(300)
class TestExamples:
    @with_mypy
    def test_mypy_takes_them(self, examples: list[Path]) -> None:
        assert mypy([*examples, *SCRIPTS], *AS_USERS_BEGIN) == []

    @with_pyright
    def test_pyright_takes_them(self, examples: list[Path]) -> None:
        assert pyright([*examples, *SCRIPTS]) == []

    @with_mypy
    def test_mypy_finds_what_is_wrong_in_one(self, tmp_path: Path) -> None:
        page = tmp_path / "page_1.py"
        page.write_text('from fsm_agent import Agent\n\nprint(Agent("x:y").call("Who?").output.nme)\n')
        assert mypy([page], *AS_USERS_BEGIN) == [("page_1.py", 3, "attr-defined")]
