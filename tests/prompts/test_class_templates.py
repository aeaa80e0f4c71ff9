"""Are the templates of classes checked when the class is made, and printed for whom they are?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import BaseModel, computed_field

from fsm_agent import PromptError
from fsm_agent.prompts import PromptField, PromptModel, prompt_guide, prompt_text

HERE = Path(__file__).parent


class Person(BaseModel):
    name: str
    role: str = "reader"


class TestTemplates:
    def test_any_class_may_declare_one(self):
        @dataclass
        class Plain:
            __prompt_template__ = "{{ name }}!"
            name: str

        class Model(BaseModel):
            __prompt_template__ = "{{ name | upper }}?"
            name: str

            @computed_field
            def shout(self) -> str:
                return self.name

        assert prompt_text(Plain("a")) == "a!"
        assert prompt_text(Model(name="a")) == "A?"

    def test_the_nearest_counts(self):
        class Parent(PromptModel):
            __prompt_template__ = "parent {{ name }}"
            name: str

        class Child(Parent):
            pass

        class Other(Parent):
            __prompt_file__ = HERE / "user_profile.jinja"
            email: str = "@"

        class Without(Parent):
            __prompt_template__ = None

        assert Child(name="a").to_prompt() == "parent a"
        assert Other(name="a").to_prompt() == "Name: a\nEmail: @"
        assert Without(name="a").to_prompt() == "name: a"

    def test_an_unknown_variable(self):
        with pytest.raises(
            PromptError,
            match=r"__prompt_template__ of .*Wrong.*name, role.*nmae",
        ):

            class Wrong(PromptModel):
                __prompt_template__ = "{{ nmae }} {{ role }}"
                name: str
                role: str

    def test_wrong_syntax(self):
        with pytest.raises(PromptError, match=r"__prompt_template__ of .*Wrong.* line 2"):

            class Wrong(PromptModel):
                __prompt_template__ = "a\n{{ name"
                name: str


class TestFiles:
    def test_in_the_working_directory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "of_cwd.txt").write_text("<{{ name }}>\n")

        class Here(PromptModel):
            __prompt_file__ = "of_cwd.txt"
            name: str

        (tmp_path / "of_cwd.txt").unlink()  # it was read when the class was made
        assert Here(name="a").to_prompt() == "<a>"

    def test_it_includes_others(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a.jinja").write_text('Dear {% include "_b.jinja" %}!')
        (tmp_path / "_b.jinja").write_text("{{ name }}")

        class Letter(PromptModel):
            __prompt_file__ = "a.jinja"
            name: str

        assert Letter(name="Ada").to_prompt() == "Dear Ada!"

    def test_a_missing_one(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(PromptError) as caught:

            class Missing(PromptModel):
                __prompt_file__ = "templates/none.jinja"

        text = str(caught.value)
        assert f"'{HERE / 'templates/none.jinja'}', '{tmp_path / 'templates/none.jinja'}'" in text

    def test_a_template_and_a_file_together_are_refused(self):
        with pytest.raises(PromptError, match=r"Both.*__prompt_template__.*__prompt_file__"):

            class Both(PromptModel):
                __prompt_template__ = "a"
                __prompt_file__ = "user_profile.jinja"

    def test_its_contents_are_checked(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a.jinja").write_text("{{ nmae }}")
        with pytest.raises(PromptError, match=r"__prompt_file__ of .*.*nmae"):

            class Wrong(PromptModel):
                __prompt_file__ = "a.jinja"
                name: str

        (tmp_path / "a.jinja").write_text("{{ ")
        with pytest.raises(PromptError, match=r"in the prompt file '.*a\.jinja': .* is wrong in line 1"):

            class Broken(PromptModel):
                __prompt_file__ = "a.jinja"


class TestTargets:
    class Task(PromptModel):
        __prompt_for__: ClassVar = {"Visual": "# {{ title }}"}

        title: str
        priority: Annotated[int, PromptField(target="Agent"), PromptField(target="Human", rename="how urgent")] = 1
        note: Annotated[str, PromptField(rename="remark"), PromptField(target="Human", skip=True)] = "n"
        dirty: Annotated[bool, PromptField(skip=True)] = False

    def test_each_has_its_fields(self):
        task = self.Task(title="T")
        assert task.to_prompt_for("Agent") == "title: T\npriority: 1\nremark: n"
        assert task.to_prompt_for("Human") == "title: T\nhow urgent: 1"
        assert task.to_prompt_for("Visual") == "# T"
        assert task.to_prompt() == "title: T\npriority: 1\nremark: n"

    def test_an_unknown_one(self):
        with pytest.raises(PromptError, match=r"^Task: .*'X'; known: Visual, Agent, Human$"):
            self.Task(title="T").to_prompt_for("X")
        with pytest.raises(PromptError, match=r"^Task: .*'Visaul'.*'Visual'\?$"):
            self.Task(title="T").to_prompt_parts_for("Visaul")
        with pytest.raises(PromptError, match=r"^Person: .*'X'"):
            prompt_text(Person(name="a"), "X")
        with pytest.raises(PromptError, match=r"^str: .*'X'"):
            prompt_text("a", "X")

    def test_values_inside_are_printed_for_the_same_target(self):
        class Board(BaseModel):
            first: Annotated[object, PromptField(target="Human")]
            last: object

        board = Board(first=self.Task(title="T"), last=Person(name="a"))
        assert prompt_text(board, "Human") == ("first:\n  title: T\n  how urgent: 1\nlast:\n  name: a\n  role: reader")

    def test_wrong_ones_are_refused_when_the_class_is_made(self):
        for declared, name in [
            ({"V": "{{ nmae }}"}, r"__prompt_for__\['V'\] of .* nmae"),
            ({"V": "{{ "}, r"__prompt_for__\['V'\] of .* line 1"),
            ({5: "a"}, "5"),
            (["V"], r"\['V'\]"),
            ({Person: "{{ name }}"}, r"__prompt_for__\['Person'\] of .* name"),
            ({Person: "{{ targte.name }}"}, "'target'"),
            ({Person: "{self:schema}"}, "'self:schema_only'"),
            ({Person: "{{ self.nmae }}"}, r"self\.nmae"),
            ({Person: "{{ target.nmae }}"}, r"target\.nmae"),
            ({Person: "{{ self"}, "line 1"),
            ({Person: 5}, "5"),
        ]:
            with pytest.raises(PromptError, match=name):

                class Wrong(PromptModel):
                    __prompt_for__: ClassVar = declared
                    name: str


class Reader(Person):
    pass


class TestObjects:
    class Tool(PromptModel):
        __prompt_for__: ClassVar = {
            Person: "{{ target.name }}/{{ target.role }}/{{ self.name }}/{{self:schema_only}}/{ self:example_only }"
            "/{self:full}/{{ {'self': 1}.self }}{{ self.about(target) }}"
        }

        name: Annotated[str, PromptField(example="x")]

        def about(self, person: Person) -> str:
            return f"{self.name} for {person.name}"

    def test_all_forms_are_filled_in(self):
        tool = self.Tool(name="saw")
        guides = "/".join([prompt_guide(tool, mode) for mode in ("schema_only", "example_only", "full")])
        assert tool.to_prompt_for(Person(name="Yui")) == f"Yui/reader/saw/{guides}/1saw for Yui"
        assert tool.to_prompt_for(Reader(name="Mai")).startswith("Mai/")

    def test_an_object_without_a_text(self):
        with pytest.raises(PromptError, match=r"Tool.*Person.*dict"):
            self.Tool(name="saw").to_prompt_for({})

    def test_what_values_say_is_no_template(self):
        said = "{self:full} {{ target.name }}"
        assert f"/{said}/" in self.Tool(name=said).to_prompt_for(Person(name="Yui"))
