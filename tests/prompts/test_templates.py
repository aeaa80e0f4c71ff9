"""Does a template contain its variables and nothing else, whatever their values are?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm_agent.errors import PromptError
from fsm_agent.prompts import Prompt


def render(template, values):
    return Prompt(template).render(**values).text


def variables(template):
    return Prompt(template).variables


class User:
    name = "Mai"
    role = "admin"

    def __str__(self):
        raise LookupError("no name for it")


def test_a_template_is_rendered_with_its_values():
    for template, values, text in (
        ("plain", {}, "plain"),
        ("{{name}} {{ name }}", {"name": 5}, "5 5"),
        ("{{ user.name }} ({{ user.role }})", {"user": User()}, "Mai (admin)"),
        ("{{ user.name }}", {"user": {"name": "Mai"}}, "Mai"),
        ("{% for x in xs %}\n- {{ x }}\n{% endfor %}\nend\n", {"xs": [1, 2]}, "- 1\n- 2\nend\n"),
        ("{{ x | default('none') }}", {}, "none"),
        ("{% if x is defined %}{{ x }}{% endif %}.", {}, "."),
        ("{# a note #}a", {}, "a"),
        ("{% if x %}<{{ x }}>{% endif %}", {"x": "<b>&'\""}, "<<b>&'\">"),
        ("{{ x | join(', ') }}", {"x": ["<b>", "&"]}, "<b>, &"),
    ):
        assert render(template, values) == text


def test_json_and_single_braces_need_no_escaping():
    for text in (
        *('{"color": "#FFFFFF", "a": {"b": [1]}}', "{ %} }", "a { b", "}} %} #}", "$x ${x} %s %(x)s {x}", "C:\\n"),
    ):
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
    """A block in front is nothing but what makes Jinja necessary."""
    try:
        values = dict.fromkeys(variables(f"y{template}"), "{{ a }}")
        text = render(f"y{template}", values)
    except PromptError:
        with pytest.raises(PromptError):
            variables(f"{{% if 1 %}}{{% endif %}}y{template}")
    else:
        assert render(f"{{% if 1 %}}{{% endif %}}y{template}", values) == text


class TestErrors:
    @pytest.mark.parametrize(
        "template", ["{{ x.items }}", "a {{ x['f'] }}", "{{ g }}", "{% for i in [g] %}{{ i }}{% endfor %}"]
    )
    def test_what_has_no_text_is_refused(self, template):
        values = {"x": {"items": "lamp", "f": len}, "g": (n for n in range(3))}
        with pytest.raises(PromptError, match=r"items|len|genexpr"):
            render(template, {name: value for name, value in values.items() if name in variables(template)})

    def test_missing_variables_are_named(self):
        with pytest.raises(PromptError, match=r" a, b; given: d$"):
            render("{% if d %}{{ b }}{{ a.c }}{% endif %}", {"d": 1})
        with pytest.raises(PromptError, match=r" a; given: none$"):
            render("{{ a }}", {})

    def test_a_missing_attribute(self):
        for template in ("{{ user.age }}", "{{ user['age'] }}", "{{ user.age.years }}"):
            with pytest.raises(PromptError, match="'age'"):
                render(template, {"user": User()})

    def test_wrong_syntax_names_the_line(self):
        for template, line in (
            *(("{{ a", 1), ("a\nb {{ c }\nd", 2), ("\n\n{% endfor %}", 3), ("{{ a | nofilter }}", 1), ("{# a", 1)),
        ):
            with pytest.raises(PromptError, match=f"line {line}: "):
                variables(template)

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
            "{% include 'file' %}",
        ],
    )
    def test_the_sandbox_holds(self, template):
        values = [1]
        with pytest.raises(PromptError):
            render(template, {"x": values})
        assert values == [1]

    def test_what_fails_while_rendering(self):
        for template in ("{{ 1 / 0 }}", "{{ x() }}", "{{ x }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"):
            with pytest.raises(PromptError):
                render(template, {"x": User()})

    def test_one_that_is_nested_too_deeply(self):
        for template in ("{{ " + "(" * 50_000 + " }}", "{% if x %}" * 5_000):
            with pytest.raises(PromptError) as caught:
                variables(template)
            assert len(str(caught.value)) < 200
