"""Do the words of a command line mean what they should?"""

from __future__ import annotations

import sys

import pytest

from fsm_agent._internal.values import field_names
from fsm_agent.cli.options import dialog_of, load_function, pairs, settings_and_limits
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.lifecycle import Limits, Settings
from fsm_agent.prompts import Prompt


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with modules in it; what they put into the interpreter is taken out again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


class TestLoadFunction:
    def test_a_module_here_and_what_it_imports(self, here):
        (here / "a_sibling_here.py").write_text("BASE = 40")
        (here / "tools_here.py").write_text(
            "import a_sibling_here\ndef add(n: int) -> int:\n    'Add.'\n    return a_sibling_here.BASE + n\n"
        )
        loaded = load_function("tools_here:add")
        assert (loaded.name, loaded.description, loaded.run('{"n": 2}')) == ("add", "Add.", 42)

    def test_what_is_here_hides_nothing_later(self, here, monkeypatch):
        (here / "colorsys.py").write_text("HERE = True")
        (here / "tools_here.py").write_text("def f(): ...")
        monkeypatch.delitem(sys.modules, "colorsys", raising=False)
        load_function("tools_here:f")
        import colorsys

        assert not hasattr(colorsys, "HERE")
        assert sys.path[-1] == str(here)
        assert str(here) not in sys.path[:-1]

    def test_what_is_here_goes_before_what_is_installed(self, here, monkeypatch):
        (here / "colorsys.py").write_text("def of_here(): ...")
        monkeypatch.delitem(sys.modules, "colorsys", raising=False)
        assert load_function("colorsys:of_here").name == "of_here"

    @pytest.mark.parametrize("named", ["tools", "tools:", ":f", ""])
    def test_the_shape_is_module_and_name(self, here, named):
        with pytest.raises(UsageError, match="'module:name' would"):
            load_function(named)

    def test_a_missing_name_is_guessed(self, here):
        with pytest.raises(ConfigError, match="no 'dump_s' in 'json:dump_s': did you mean 'dumps'"):
            load_function("json:dump_s")

    def test_a_module_that_cannot_be_imported(self, here):
        (here / "broken_here.py").write_text("1 / 0")
        with pytest.raises(ConfigError, match=r"'broken_here:f' .*ZeroDivisionError: division by zero"):
            load_function("broken_here:f")

    def test_the_line_that_failed_is_told(self, here):
        (here / "outer_here.py").write_text("\nimport inner_here")
        (here / "inner_here.py").write_text("def f():\n    1 / 0\n\nf()")
        with pytest.raises(ConfigError, match=r"division by zero \(inner_here\.py, line 4\)"):
            load_function("outer_here:f")

    @pytest.mark.parametrize(
        ("raised", "said"),
        [("GeneratorExit", "GeneratorExit"), ("type('Halt', (BaseException,), {})('no')", r"Halt: no \(odd_here\.py")],
    )
    def test_a_module_that_raises_what_is_no_exception(self, here, raised, said):
        (here / "odd_here.py").write_text(f"raise {raised}")
        with pytest.raises(ConfigError, match=said):
            load_function("odd_here:f")

    def test_ctrl_c_in_a_module_is_one(self, here):
        (here / "slow_here.py").write_text("raise KeyboardInterrupt")
        with pytest.raises(KeyboardInterrupt):
            load_function("slow_here:f")

    def test_a_name_that_cannot_be_had(self, here):
        (here / "odd_here.py").write_text("def __getattr__(name): raise RuntimeError('no ' + name)")
        with pytest.raises(ConfigError, match="'f' of 'odd_here:f' cannot be had: RuntimeError: no f"):
            load_function("odd_here:f")

    def test_a_file_is_no_module(self, here):
        (here / "tools_here.py").write_text("1 / 0  # it is not even imported")
        for named in ("tools_here.py:f", f"{here}/tools_here.py:f"):
            with pytest.raises(ConfigError, match="names a file: its module would be right, as 'tools_here:f'"):
                load_function(named)

    def test_a_module_nearly_named(self, here):
        (here / "tools_here.py").write_text("")
        with pytest.raises(ConfigError, match=r"no module 'tool_here' .* did you mean 'tools_here'"):
            load_function("tool_here:f")

    def test_what_it_imports_is_missing(self, here):
        (here / "needy_here.py").write_text("import no_such_module")
        with pytest.raises(ConfigError, match="'needy_here:f' cannot be imported: No module named 'no_such_module'"):
            load_function("needy_here:f")


class TestPairs:
    @pytest.mark.parametrize("option", ["a", "=1", ""])
    def test_the_shape(self, option):
        with pytest.raises(UsageError, match="'name=value' would"):
            pairs([option])


class TestSettingsAndLimits:
    def test_each_goes_where_it_belongs(self):
        said = {
            "temperature": "0",
            "max_tokens": "99",
            "tool_choice": "add",
            "stop": '["x"]',
            "rounds": "3",
            "wait_s": "null",
        }
        assert settings_and_limits(said) == (
            Settings(temperature=0, max_tokens=99, tool_choice="add", stop=("x",)),
            Limits(rounds=3, wait_s=None),
        )

    def test_an_unknown_name_is_guessed(self):
        with pytest.raises(UsageError, match="'temprature' is no setting or limit: did you mean 'temperature'"):
            settings_and_limits({"temprature": "0"})
        with pytest.raises(UsageError, match=r"there are: cache, check_s, cost_usd, deadline_s, .*temperature"):
            settings_and_limits({"xyzzy": "0"})

    def test_a_byte_that_is_no_text(self):
        with pytest.raises(UsageError, match=r"temperature is .* with a byte that is no UTF-8"):
            settings_and_limits({"temperature": "\udcff"})

    def test_no_two_have_one_name(self):
        assert not set(field_names(Settings)) & set(field_names(Limits))

    @pytest.mark.parametrize(("name", "value"), [("temperature", "hot"), ("max_tokens", "1.5"), ("rounds", "-1")])
    def test_a_value_of_the_wrong_kind(self, name, value):
        with pytest.raises(UsageError, match=name):
            settings_and_limits({name: value})


class TestDialogOf:
    def test_a_text_is_taken_as_it_is(self):
        dialog = dialog_of("{{ not a template }}", None, {}, "Be brief.")
        assert [(m.role, m.text) for m in dialog] == [("system", "Be brief."), ("user", "{{ not a template }}")]
        assert dialog.top_prompt is None

    def test_a_prompt_with_its_variables(self):
        prompt = Prompt("{{ greeting }}, {{ task }}")
        dialog = dialog_of("world", prompt, {"greeting": "Hello"}, "")
        assert [(m.role, m.text) for m in dialog] == [("user", "Hello, world")]
        assert dialog.top_prompt is prompt

    def test_nothing_to_ask(self):
        for nothing in (None, ""):
            with pytest.raises(UsageError, match="nothing to ask"):
                dialog_of(nothing, None, {}, "")

    def test_a_variable_that_is_not_asked_for(self):
        with pytest.raises(UsageError, match=r"'task' is not asked for; those that are: who"):
            dialog_of("hi", Prompt("{{ who }}"), {"who": "x"}, "")
        with pytest.raises(UsageError, match="'who' is not asked for"):
            dialog_of("hi", None, {"who": "x"}, "")

    def test_a_variable_that_is_missing(self):
        with pytest.raises(UsageError, match="needs the variable 'who'"):
            dialog_of(None, Prompt("{{ who }}"), {}, "")
