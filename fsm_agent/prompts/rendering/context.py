"""Templates that print a value for one object: ``{{ self.name }}``, ``{{ target.name }}``, ``{self:schema_only}``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from fsm_agent._internal.lazy_import import pattern
from fsm_agent.errors import PromptError, hint
from fsm_agent.prompts.rendering.fields import is_record, names_of
from fsm_agent.prompts.rendering.guide import MODES, prompt_guide
from fsm_agent.prompts.template import attributes, names_replaced, render, variables

_FORM = pattern(r"\{\{ *self *: *(\w+) *\}\}|\{ *self *: *(\w+) *\}")
_SELF = "self_"  # Jinja2 has a meaning of its own for self


@lru_cache(maxsize=1024)
def _readable(template: str) -> str:
    """Return the template with names that Jinja2 can read."""
    return names_replaced(_FORM.sub(lambda form: f"{{{{ {_SELF}{form[1] or form[2]} }}}}", template), {"self": _SELF})


def render_for(template: str, value: Any, target: object) -> str:
    """Return the text of a value for an object."""
    readable = _readable(template)
    forms = {mode: f"{_SELF}{mode}" for mode in MODES}
    guides = {name: prompt_guide(value, mode) for mode, name in forms.items() if name in variables(readable)}
    return render(readable, {_SELF: value, "target": target, **guides})


def check_context(template: Any, kind: type, target: type, owner: str) -> None:
    """Check the template of a class for objects of a type.

    Raises:
        PromptError: It is no text, its syntax is wrong, or it names what there is not.
    """
    if not isinstance(template, str):
        raise PromptError(f"{owner}: expected a string, got {template!r:.80}")
    try:
        readable = _readable(template)
        used = variables(readable)
    except PromptError as error:
        raise PromptError(f"{owner}: {error}") from error
    known = ["self", "target", *[f"self:{mode}" for mode in MODES]]
    shown = {_SELF: "self", "target": "target", **{f"{_SELF}{mode}": f"self:{mode}" for mode in MODES}}
    for name in sorted(used - shown.keys()):
        shown_name = f"self:{name.removeprefix(_SELF)}" if name.startswith(_SELF) else name
        raise PromptError(f"{owner}: expected a known name, got {shown_name}{hint(shown_name, known)}")
    for name, attribute in sorted(attributes(readable)):
        of = {_SELF: kind, "target": target}.get(name)
        if of is not None and is_record(of) and not hasattr(of, attribute) and attribute not in names_of(of):
            fields = ", ".join(names_of(of)) or "none"
            raise PromptError(f"{owner}: expected one of the fields ({fields}), got {shown[name]}.{attribute}")
