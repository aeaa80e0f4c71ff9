"""Are prompts found by name, in code and in files, and nothing else?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsm_agent.errors import PromptError
from fsm_agent.prompts import Prompt, Prompts, register_prompt
from fsm_agent.testing import registries


@pytest.fixture(autouse=True)
def _forget():
    with registries():
        yield


@pytest.fixture
def library(tmp_path):
    """A directory with the roots ``demo`` and ``deep/er``.  Its neighbours are out of bounds."""
    directory = tmp_path / "library"
    for name, text in {
        "demo/task.jinja": "What is {{ a }} + {{ b }}?\n",
        "demo/task.exception.jinja": "No: {{ error_message }}\n",
        "demo/task.interrupt.jinja": "It says {{ call_results }}.",
        "demo/task.final.jinja": "Enough after {{ rounds }}.",
        "demo/plain.jinja": "Grüße, 世界",
        "demo/more/of_it.jinja": "deeper",
        "deep/er/one.jinja": "1",
    }.items():
        write(directory / name, text)
    write(tmp_path / "secret.jinja", "secret")
    return directory


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


class TestFiles:
    def test_a_prompt_is_its_file(self, library):
        prompt = Prompts("demo", directory=library)("task")
        assert prompt.path == "demo/task"
        assert prompt.render(a=17, b=25).text == "What is 17 + 25?"

    def test_its_handlers_are_the_files_beside_it(self, library):
        prompt = Prompts("demo", directory=library)("task")
        assert prompt.handler_text("exception", error_message="bad", attempt=1) == "No: bad"
        assert prompt.handler_text("interrupt", call_results="42", name="add", arguments="{}") == "It says 42."
        assert prompt.handler_text("final", rounds=5) == "Enough after 5."

    def test_only_the_end_of_the_last_line_is_not_the_prompts(self, library):
        prompts = Prompts("demo", directory=library)
        for written, template in (
            *(("a\n", "a"), ("a", "a"), ("\n\n a \n \n", "\n\n a \n "), ("\r\na\r\n\r\n", "\na\n"), ("", "")),
        ):
            (library / "demo/edges.jinja").write_bytes(written.encode())
            (library / "demo/plain.final.jinja").write_bytes(written.encode())
            assert (prompts("edges").template, prompts("plain").on_final) == (template, template)

    def test_an_edit_is_seen_at_once(self, library):
        prompts = Prompts("demo", directory=library)
        before = prompts("plain").template
        write(library / "demo/plain.jinja", "edited")
        assert (before, prompts("plain").template) == ("Grüße, 世界", "edited")


class TestMissing:
    def test_the_error_lists_what_there_is(self, library):
        with pytest.raises(PromptError, match=r"'demo/tusk' .*'task'.*more/of_it, plain, task"):
            Prompts("demo", directory=library)("tusk")

    def test_the_error_says_where_it_was_looked_for(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        here = str(tmp_path / "prompts")
        with pytest.raises(PromptError) as caught:
            Prompts("agent_root")("x")
        (packaged,) = Prompts("agent_root").directories
        assert f"{here!r} or {str(packaged)!r}" in str(caught.value)
        (tmp_path / "prompts/agent_root").mkdir(parents=True)
        with pytest.raises(PromptError) as caught:
            Prompts("agent_root")("x")
        assert str(packaged) not in str(caught.value)

    def test_get_gives_the_default(self, library):
        prompts = Prompts("demo", directory=library)
        assert prompts.get("nope") is None
        assert prompts.get("nope", "mine") == "mine"
        assert prompts.get("plain", "mine").path == "demo/plain"

    def test_get_does_not_hide_what_is_wrong(self, library):
        write(library / "demo/bad.jinja", "{{ a")
        with pytest.raises(PromptError):
            Prompts("demo", directory=library).get("bad", "mine")
        with pytest.raises(PromptError):
            Prompts("demo", directory=library).get("../secret", "mine")


class TestNamesAreData:
    def test_none_is_a_path(self, library):
        for name in (
            *("../secret", "..", ".", "", "/", "a/", "/a", "a//b", "a.b", "task.exception", "a\\b", "a\0", "a\n"),
            *("task ",),
            *("ä", "~", str(library.parent / "secret"), "a" * 5000, "a/" * 600 + "a", "a" * 250),
        ):
            with pytest.raises(PromptError, match="name of a prompt"):
                Prompts("demo", directory=library)(name)
            with pytest.raises(PromptError, match="name of a prompt"):
                Prompts(name, directory=library)

    @pytest.mark.parametrize("name", ["link", "task2"])
    def test_a_link_out_of_the_directory_is_refused(self, library, name):
        write(library / "demo/task2.jinja", "fine")
        link = "link.jinja" if name == "link" else "task2.exception.jinja"
        (library / "demo" / link).symlink_to(library.parent / "secret.jinja")
        with pytest.raises(PromptError, match="leads out of") as caught:
            Prompts("demo", directory=library)(name)
        assert "secret" not in str(caught.value)

    def test_a_linked_folder_out_of_the_directory_is_refused(self, library):
        (library / "out").symlink_to(library.parent, target_is_directory=True)
        with pytest.raises(PromptError, match="leads out of"):
            Prompts("out", directory=library)("secret")


class TestBadFiles:
    def refusal(self, library, name="bad"):
        with pytest.raises(PromptError) as caught:
            Prompts("demo", directory=library)(name)
        return str(caught.value)

    def test_a_wrong_template_names_file_and_line(self, library):
        write(library / "demo/bad.jinja", "one\ntwo {{ x\n")
        refusal = self.refusal(library)
        assert str(library / "demo/bad.jinja") in refusal
        assert "line 2" in refusal

    def test_not_utf8(self, library):
        (library / "demo/bad.jinja").write_bytes(b"caf\xe9")
        assert "byte 3" in self.refusal(library)

    def test_too_large(self, library):
        write(library / "demo/bad.jinja", "x" * 256_000)
        assert len(Prompts("demo", directory=library)("bad").template) == 256_000
        write(library / "demo/bad.jinja", "x" * 256_001)
        assert "256000" in self.refusal(library)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")
    def test_a_named_pipe_is_not_waited_for(self, library):
        os.mkfifo(library / "demo/bad.jinja")
        assert "bad.jinja" in self.refusal(library)


def test_a_folder_tells_the_first_problem_of_each_file(library):
    assert Prompts(directory=library).problems() == []
    for name in ("demo/plain.md", "demo/task.exceptoin.txt", "demo/lost.final.txt", "demo/a b.md"):
        write(library / name, "text")
    write(library / "demo/bad.md", "one\ntwo {{ x\n")
    write(library / "demo/_part.md", "{{ y")
    told = {
        (Path(problem.file).name, problem.line, problem.text)
        for problem in Prompts("demo", directory=library).problems()
    }
    assert {(name, line) for name, line, _ in told} == {
        *[("plain.jinja", 0), ("task.exceptoin.txt", 0), ("lost.final.txt", 0), ("a b.md", 0)],
        *[("bad.md", 2), ("_part.md", 1)],
    }
    for name in ("'plain.md'", "'exception'", "'lost'", "'a b'"):
        assert any(name in text for *_, text in told), name


class TestRegistered:
    def test_it_is_found_and_goes_before_files(self, library):
        prompt = register_prompt(Prompt("in code", path="demo/task"))
        assert Prompts("demo", directory=library)("task") is prompt

    def test_duplicates_are_refused(self):
        prompt = register_prompt(Prompt("one", path="demo/task"))
        register_prompt(prompt)
        with pytest.raises(PromptError, match="'demo/task'"):
            register_prompt(Prompt("two", path="demo/task"))
        assert Prompts("demo")("task") is prompt

    def test_a_scope_forgets_what_came_in_it(self):
        outer = register_prompt(Prompt("x", path="demo/outer"))
        with registries():
            register_prompt(Prompt("x", path="demo/inner"))
            register_prompt(Prompt("y", path="demo/outer"), overwrite=True)
        assert Prompts("demo")("outer") is outer
        assert Prompts("demo").get("inner") is None


class TestDirectory:
    def test_the_working_directory_goes_first_if_it_holds_the_root(self, library, monkeypatch):
        library.rename(library.parent / "prompts")
        monkeypatch.chdir(library.parent)
        assert Prompts("demo")("plain").template == "Grüße, 世界"

    def test_otherwise_the_package(self, tmp_path, monkeypatch):
        write(tmp_path / "prompts/mine/task.jinja", "mine")
        monkeypatch.chdir(tmp_path)
        assert Prompts("demo")("task").render(a=1, b=2).text == "What is 1 + 2?"
        assert Prompts("mine")("task").template == "mine"

    def test_all_that_the_package_carries_can_be_loaded(self):
        (packaged,) = Prompts("demo").directories
        roots = [path.name for path in packaged.iterdir() if path.is_dir()]
        assert "demo" in roots
        for root in roots:
            prompts = Prompts(root, directory=packaged)
            assert [prompts(name).path for name in prompts.names()] == [f"{root}/{name}" for name in prompts.names()]
