"""Does a template say its variables and nothing else, whatever is in them?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent.errors import PromptError
from fsm_agent.prompts.template import _compiled, _pieces, render, variables


class User:
    name = "Mai"
    role = "admin"

    def __str__(self):
        raise LookupError("no name for it")


@pytest.mark.spec("2.6: variables and dotted access")
@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("plain", {}, "plain"),
        ("Hello {{ name }}!", {"name": "Mai"}, "Hello Mai!"),
        ("{{name}} {{ name }}", {"name": 5, "unused": 1}, "5 5"),
        ("{{ user.name }} ({{ user.role }})", {"user": User()}, "Mai (admin)"),
        ("{{ user.name }}", {"user": {"name": "Mai"}}, "Mai"),
        ("{% for x in xs %}\n- {{ x }}\n{% endfor %}\nend\n", {"xs": [1, 2]}, "- 1\n- 2\nend\n"),
        ("{{ x | default('none') }}", {}, "none"),
        ("{% if x is defined %}{{ x }}{% endif %}.", {}, "."),
        ("{% set y = 2 %}{{ y }}", {}, "2"),
        ("{# a note #}a", {}, "a"),
        ("<{{ x }}>", {"x": "<b>&"}, "<<b>&>"),
        ("{% if x %}<{{ x }}>{% endif %}", {"x": "<b>&'\""}, "<<b>&'\">"),
        ("{{ x | join(', ') }}", {"x": ["<b>", "&"]}, "<b>, &"),
    ],
)
def test_a_template_is_rendered_with_its_values(template, values, text):
    assert render(template, values) == text


@pytest.mark.spec("2.9: hashes, braces and quotes stay as they are")
@pytest.mark.parametrize(
    "text", ['{"color": "#FFFFFF", "a": {"b": [1]}}', "{ %} }", "a { b", "}} %} #}", "$x ${x} %s %(x)s {x}", "C:\\n"]
)
def test_json_and_single_braces_need_no_escaping(text):
    assert render(text, {}) == text
    assert render(text + "{{ x }}", {"x": 1}) == text + "1"


@settings(deadline=None)
@given(st.text() | st.text(alphabet="{}%#x _'\"\n"))
def test_a_value_is_never_a_template(value):
    assert render("<{{ value }}>", {"value": value}) == f"<{value}>"


PIECES = (
    "{{ a }}",
    "{{b}}",
    "{{  long_name1  }}",
    "{",
    "}",
    "{{",
    "}}",
    "#",
    "%",
    "-",
    "\n",
    "\r\n",
    "x",
    "{{ a",
    "b }}",
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_what_is_filled_in_without_jinja_is_what_jinja_makes_of_it(template):
    if _pieces(template) is not None:
        values = dict.fromkeys(variables(template), "{{ a }}")
        assert render(template, values) == _compiled(template).render(values)


def test_variables_are_the_names_that_the_template_reads():
    assert variables("{{ a }} {{ b.c }} {% for d in e %}{{ d }}{% endfor %} {{ range(3) }}") == {"a", "b", "e"}
    assert variables("plain") == set()


class TestErrors:
    @pytest.mark.spec("2.6: a missing variable is an error that names it")
    def test_missing_variables_are_named(self):
        with pytest.raises(PromptError, match=r"'\{\{ b \}\}\{\{ a.c \}\}' needs the variable\(s\) a, b; given: x, y"):
            render("{{ b }}{{ a.c }}", {"y": 1, "x": 2})
        with pytest.raises(PromptError, match=r"needs the variable\(s\) a; given: none"):
            render("{{ a }}", {})

    @pytest.mark.parametrize("template", ["{{ user.age }}", "{{ user['age'] }}", "{{ user.age.years }}"])
    def test_a_missing_attribute(self, template):
        with pytest.raises(PromptError, match=r"cannot be rendered: .* has no attribute 'age'"):
            render(template, {"user": User()})

    @pytest.mark.spec("2.6: a broken template is an error")
    @pytest.mark.parametrize(
        ("template", "line"),
        [
            ("{{ a", 1),
            ("a\nb {{ c }\nd", 2),
            ("{% if %}", 1),
            ("\n\n{% endfor %}", 3),
            ("{{ a | nofilter }}", 1),
            ("{# a", 1),
        ],
    )
    def test_wrong_syntax_names_the_line(self, template, line):
        for read in (variables, lambda template: render(template, {"a": 1, "c": 1})):
            with pytest.raises(PromptError, match=f"is wrong in line {line}: "):
                read(template)

    @pytest.mark.parametrize(
        "template",
        [
            "{{ x.__class__ }}",
            "{{ x['__class__'] }}",
            "{{ x | attr('__class__') }}",
            "{{ ().__class__.__base__.__subclasses__() }}",
            "{{ '{0.__class__}'.format(x) }}",
            "{{ lipsum.__globals__ }}",
            "{{ cycler.__init__.__globals__ }}",
            "{{ self.__init__ }}",
            "{{ x.append(1) }}",
            "{% for i in range(10 ** 9) %}{% endfor %}",
        ],
    )
    def test_the_sandbox_holds(self, template):
        values = [1]
        with pytest.raises(PromptError, match=r"unsafe|Range too big|cannot be rendered"):
            render(template, {"x": values})
        assert values == [1]

    @pytest.mark.parametrize(
        "template",
        [
            "{{ 1 / 0 }}",
            "{{ 1 + 'a' }}",
            "{{ x() }}",
            "{{ x }}",
            "{% include 'file' %}",
            "{{ 'a'.index('b') }}",
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        ],
    )
    def test_what_fails_while_rendering(self, template):
        with pytest.raises(PromptError, match=r"cannot be rendered: ."):
            render(template, {"x": User()})

    @pytest.mark.parametrize("template", ["{{ " + "(" * 50_000 + " }}", "{% if x %}" * 5_000])
    def test_one_that_is_nested_too_deeply(self, template):
        for read in (variables, lambda template: render(template, {"x": 1})):
            with pytest.raises(PromptError, match="nested too deeply") as caught:
                read(template)
            assert len(str(caught.value)) < 200
