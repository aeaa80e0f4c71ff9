"""Does a configuration say everything that an agent takes, and is each mistake in it named?

The table of mistakes is made of the schema: a new key is in it at once.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic_core import from_json
from support import configured

from fsm_agent import (
    AgentBase,
    AgentConfig,
    CallFailed,
    ConfigError,
    Limits,
    Prompt,
    Settings,
    build_agent,
)
from fsm_agent.agents.config.files import Lines
from fsm_agent.agents.config.source import MAX_PROBLEMS
from fsm_agent.agents.config.tables import PRESETS
from fsm_agent.agents.registry import AGENTS
from fsm_agent.clients import register_client
from fsm_agent.clients.registered import CLIENTS
from fsm_agent.functions import register_function
from fsm_agent.functions.registered import FUNCTIONS
from fsm_agent.testing import Script, call

KEY = "sk-hunter2hunter2hunter2"


@pytest.fixture(autouse=True)
def _scopes(monkeypatch):
    monkeypatch.setenv("EDITOR_KEY", KEY)
    with AGENTS.scoped(), FUNCTIONS.scoped(), CLIENTS.scoped():
        register_function(configured.add)

        class Paper(AgentBase):
            agent_type = "paper"
            agent_group = ("editor", "author")

            def call(self, task, **kwargs):
                return self.agents["editor"].call(task, **kwargs).output

        yield


# --- the table of mistakes --------------------------------------------------------------------------------------------

EXAMPLES = {  # of keys whose values name something
    "model": "openai:gpt-5-mini",
    "functions": ["add", "support.configured:add"][:1],
    "output": "support.configured:Report",
    "profile": "creative",
    "approve": "support.configured:approve",
    "hooks": ["support.configured:Steps"],
    "stop_when": "support.configured:stop",
    "check": "support.configured:judge",
    "context": ["support.configured:last_message"],
    "keep": ["support.configured:last_message"],
    "results": "support.configured:results",
    "prices": "support.configured:prices",
    "api_key": "${EDITOR_KEY}",
    "base_url": "https://example.invalid/v1",
    "wire": "openai-chat",
    "headers": {"x-team": "press"},
    "url": "https://example.invalid/mcp",
    "agent_type": "paper",
    "prompt": "paper/task",
    "system_path": "paper/system",
    "prompts": "prompts",
    "$schema": "agent.schema.json",
    "identical_rounds": 2,
    "failures_per_function": 1,
    "parallel": 1,
    "tool_choice": "auto",
    "authorization": "${EDITOR_KEY}",
    "display_width": 640,
    "display_height": 480,
}
FREE = {"headers", "extra_body"}  # tables whose keys are the user's


def choices(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in schema:
        return choices(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return [found for item in schema["anyOf"] for found in choices(item, root)]
    return [schema]


def example(key: str, schema: Mapping[str, Any], root: Mapping[str, Any], without: tuple[str, ...]) -> Any:
    """A value that is right, with every key in it but some."""
    first = next(item for item in choices(schema, root) if item.get("type") != "null")
    if key == "agent_configs":
        return {"editor": example("", first["additionalProperties"], root, without)}
    if key in EXAMPLES:
        return EXAMPLES[key]
    if "enum" in first:
        return first["enum"][0]
    match first.get("type"):
        case "object":
            return {
                name: example(name, item, root, without)
                for name, item in first.get("properties", {}).items()
                if name not in without
            }
        case "array":
            items = first.get("items")
            return [example("", item, root, without) for item in choices(items, root)] if items else []
    return {"integer": 2, "number": 0.5, "boolean": True, "string": "text"}[first["type"]]


def keys_in(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all keys."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            if path[-1:] != ("agent_configs",):
                yield (*path, key)
            if key not in FREE:
                yield from keys_in(value, (*path, key))
    elif isinstance(values, list):
        for index, value in enumerate(values):
            yield from keys_in(value, (*path, index))


def everything(without: tuple[str, ...]) -> dict[str, Any]:
    schema = AgentConfig.model_json_schema()
    made: dict[str, Any] = example("", schema, schema, without)
    return made


# Some keys exclude each other.
WHOLE = [everything(("system", "blocked_domains")), everything(("system_path", "allowed_domains"))]
ALL = [(WHOLE[0], path) for path in keys_in(WHOLE[0])]
ALL += [(WHOLE[1], path) for path in keys_in(WHOLE[1]) if path[-1] in ("system", "blocked_domains")]
NEEDED = {"agent_type", "model", "kind", "label", "url", "prompts"}
REMEDY = re.compile(r"did you mean|here that is|would be right|there are|expected|[Ss]hould be|is right|kinds of|needs")


def changed(whole: Any, path: tuple[Any, ...], change: Callable[[dict[str, Any], str], Any]) -> dict[str, Any]:
    """The whole configuration with a change where the path leads to."""
    values: dict[str, Any] = copy.deepcopy(whole)
    at: Any = values
    for key in path[:-1]:
        at = at[key]
    change(at, path[-1])
    return values


def toml(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    lines = [f"{json.dumps(key)} = {inline(value)}" for key, value in values.items() if key not in tables]
    text = "".join(f"{line}\n" for line in lines)
    for key, value in tables.items():
        name = ".".join(map(json.dumps, (*path, key)))
        text += f"\n# a table\n[{name}]\n{toml(value, (*path, key))}"
    return text


def inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value)


WRITERS: dict[str, Callable[[Any], str]] = {
    "toml": toml,
    "yaml": lambda values: yaml.safe_dump(values, sort_keys=False),
    "json": lambda values: json.dumps(values, indent=2),
}

Keys = list[tuple[Any, tuple[Any, ...]]]
# Each key once, at another level than the one before it, and those that are needed wherever they may be.
ONCE: Keys = [
    found
    for number, name in enumerate(dict.fromkeys(path[-1] for _, path in ALL))
    for places in [[found for found in ALL if found[1][-1] == name]]
    for found in (places if name in NEEDED else [places[number % len(places)]])
]
IN_JSON = pytest.param("json", ONCE, id="json")  # the quickest
LONG = [pytest.param(name, ALL, marks=pytest.mark.nightly, id=f"{name}, everywhere") for name in ("json", "toml")]
# YAML is read slowly; what is wrong with a value is found in the same way whatever it was read from.
EACH = [IN_JSON, *LONG, pytest.param("yaml", ONCE, marks=pytest.mark.nightly, id="yaml")]
EACH_NAME = [*EACH, *[pytest.param(name, ONCE[::12], id=f"{name}, some") for name in ("toml", "yaml")]]


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    (tmp_path / "prompts" / "paper").mkdir(parents=True)
    (tmp_path / "prompts" / "paper" / "task.jinja").write_text("Write: {{ task }}\n")
    (tmp_path / "prompts" / "paper" / "system.jinja").write_text("You write.\n")
    return tmp_path


def problem(folder: Path, format_: str, values: Mapping[str, Any]) -> tuple[str, str]:
    """The message of the error that a file is refused with, and the file's text."""
    text = WRITERS[format_](values)
    file = folder / f"paper.{format_}"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        build_agent(file)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    message = str(caught.value)
    assert repr(str(file)) in message
    return message, text


def assert_placed(message: str, text: str, path: tuple[Any, ...], line: int) -> None:
    """The message names the key with its place and its line."""
    dotted = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")
    assert any(
        said.startswith(f"  line {line}, {dotted}") or said.startswith(f"  line {line}, {dotted.rpartition('.')[0]}")
        for said in message.splitlines()
    ), (message, line)
    assert str(path[-1]) in message


def line_with(text: str, path: tuple[Any, ...], format_: str) -> int:
    """The line on which the last key of a path stands; of a table of TOML, its header."""
    if format_ != "json":
        return {"toml": toml_line, "yaml": yaml_line}[format_](text, path)
    found = Lines(text, lambda part: from_json(part, allow_partial=True)).find(path)
    assert found is not None
    shown = text.splitlines()[found - 1]
    assert str(path[-1]) in shown, shown
    return found


def toml_line(text: str, path: tuple[Any, ...]) -> int:
    """Read what `toml` writes: a line for each key, whatever is in its value, and one for each table."""
    lines = text.splitlines()
    found = 0
    for depth in range(1, len(path) + 1):
        header = f"[{'.'.join(map(json.dumps, path[:depth]))}]"
        if header not in lines:
            start = f"{json.dumps(path[depth - 1])} = "
            return next(number for number, line in enumerate(lines[found:], found + 1) if line.startswith(start))
        found = lines.index(header) + 1
    return found


def yaml_line(text: str, path: tuple[Any, ...]) -> int:
    node = yaml.compose(text)
    line = 0
    for key in path:
        if isinstance(key, int):
            node = node.value[key]
            line = node.start_mark.line
        else:
            name, node = next(pair for pair in node.value if pair[0].value == key)
            line = name.start_mark.line
    return line + 1


def test_the_table_has_every_key():
    named = {path[-1] for _, path in ALL}
    assert len(ALL) > 150
    assert {*Limits.__struct_fields__, *Settings.__struct_fields__} <= named
    assert {"api_key", "profile", "approve", "global", "agent_configs", "allowed_domains"} <= named


@pytest.mark.parametrize("format_", WRITERS)
def test_the_whole_configuration_is_right(paper, format_):
    (paper / f"paper.{format_}").write_text(WRITERS[format_](WHOLE[0]))
    with build_agent(paper / f"paper.{format_}") as agent:
        editor = agent.agents["editor"]
        assert editor.client.name == "openai:gpt-5-mini"
        assert [function.name for function in editor.functions] == ["add"]
        assert editor.output is configured.Report
        assert isinstance(editor.hooks[0], configured.Steps)
        assert editor.results is configured.results
        assert editor.prices is configured.prices
        assert editor.approve is configured.approve
        assert isinstance(editor.system, Prompt)
        assert KEY not in repr(agent.config) + repr(editor) + agent.config.model_dump_json()


@pytest.mark.spec("3.25: a misspelt key is refused")
@pytest.mark.timeout(180)  # YAML
@pytest.mark.parametrize(("format_", "keys"), EACH_NAME)
def test_every_misspelt_key_is_named_with_the_right_one(paper, format_, keys):
    for whole, path in keys:
        wrong = f"{path[-1]}z"

        def misspell(at: dict[str, Any], key: str, wrong: str = wrong) -> None:
            at[wrong] = at.pop(key)

        message, text = problem(paper, format_, changed(whole, path, misspell))
        place = (*path[:-1], wrong)
        assert_placed(message, text, place, line_with(text, place, format_))
        assert f"did you mean {path[-1]!r}?" in message, message


@pytest.mark.parametrize(("format_", "keys"), EACH)
def test_every_value_of_a_wrong_type_is_named_with_a_right_one(paper, format_, keys):
    for whole, path in keys:
        value: Any = whole
        for key in path:
            value = value[key]
        wrong: Any = "text" if isinstance(value, bool | int | float | list | Mapping) else 3

        def mistype(at: dict[str, Any], key: str, wrong: Any = wrong) -> None:
            at[key] = wrong

        message, text = problem(paper, format_, changed(whole, path, mistype))
        assert_placed(message, text, path, line_with(text, path, format_))
        assert REMEDY.search(message.partition("\n")[2]), message


@pytest.mark.parametrize(("format_", "keys"), EACH)
def test_every_removed_key_is_either_optional_or_named(paper, format_, keys):
    needed = set()
    for whole, path in keys:
        values = changed(whole, path, lambda at, key: at.pop(key))
        if path[-1] == "model":
            values = {**values, "global": {}, "agent_configs": {}}
        file = paper / f"paper.{format_}"
        file.write_text(WRITERS[format_](values))
        try:
            build_agent(file).close()
        except ConfigError as error:
            message = str(error)
            assert repr(str(file)) in message
            assert re.search(rf"  line \d+, .*{path[-1]}", message), message
            needed.add(path[-1])
    assert needed == NEEDED


# --- what a configuration says ----------------------------------------------------------------------------------------


def editor(*layers: str, **code: Any) -> Any:
    """The sub-agent of a configuration in TOML."""
    return build_agent({**tomllib.loads("\n".join(("agent_type = 'paper'", *layers))), **code}).agents["editor"]


class TestLayers:
    """Keys of the sub-agent, then of the agent, then of ``global``, then of the class."""

    def test_the_nearest_wins(self):
        three = ("system = 'top'", "model = 'x:top'", "[global]", "system = 'far'", "model = 'x:far'", "store = 'f.db'")
        near = editor(*three, "[agent_configs.editor]", "system = 'near'")
        assert (near.system, near.model, Path(near.store)) == ("near", "x:top", Path("f.db"))

    def test_tables_are_merged_key_by_key(self):
        near = editor(
            "model = 'x:y'",
            "limits = {rounds = 2, recalls = 1}",
            "global = {limits = {rounds = 1, depth = 2}, settings = {seed = 4}}",
            "agent_configs = {editor = {limits = {recalls = 0}, settings = {max_tokens = 9}}}",
        )
        assert near.limits == Limits(rounds=2, recalls=0, depth=2)
        assert near.settings == Settings(seed=4, max_tokens=9)

    @pytest.mark.spec("2.36: three presets become settings")
    @pytest.mark.parametrize("profile", PRESETS)
    def test_a_preset_becomes_settings_of_the_request(self, script, profile):
        client = script("Done.")
        build_agent({"agent_type": "paper", "profile": profile}, client=client)("Write.")
        sent = client.requests[0].settings
        assert sent.temperature == {"creative": 1.0, "balanced": 0.7, "deterministic": 0.0}[profile]
        assert sent.seed == (1 if profile == "deterministic" else None)

    @pytest.mark.spec("2.36: given settings win")
    def test_settings_win_over_presets_and_the_nearest_preset_counts(self):
        assert editor("model='x:y'", "profile='creative'", "global={settings={temperature=0.3}}").settings == Settings(
            temperature=0.3
        )
        near = editor("model='x:y'", "profile='creative'", "agent_configs={editor={profile='deterministic'}}")
        assert near.settings == Settings(temperature=0.0, seed=1)

    def test_overrides_change_tables_key_by_key(self):
        config = {"agent_type": "paper", "model": "x:y", "limits": {"rounds": 2, "depth": 1}}
        agent = build_agent(config, model="x:z", limits={"rounds": 7}, settings=Settings(seed=3), name="daily")
        assert agent.name == "daily"
        assert agent.agents["author"].limits == Limits(rounds=7, depth=1)
        assert agent.agents["author"].settings == Settings(seed=3)
        assert agent.agents["author"].model == "x:z"
        assert config["limits"] == {"rounds": 2, "depth": 1}
        changed = AgentConfig.of(agent.config, limits={"rounds": 8})
        assert (changed.limits, agent.config.limits["rounds"]) == ({"rounds": 8, "depth": 1}, 7)

    @pytest.mark.parametrize("override", [{"modle": "x:y"}, {"limits": {"round": 3}}, {"profile": "creativ"}])
    def test_a_wrong_override_is_refused(self, override):
        with pytest.raises((ConfigError, TypeError), match=r"modle|did you mean"):
            build_agent({"agent_type": "paper", "model": "x:y"}, **override)

    def test_code_may_be_given_in_a_mapping(self, script):
        seen = configured.Steps()
        client = script(call("add", a=1, b=2), '{"text": "3"}')
        own = {"functions": [configured.add], "output": configured.Report, "hooks": (seen,)}
        agent = build_agent({"agent_type": "paper", "agent_configs": {"editor": own}}, client=client)
        assert agent.agents["editor"].call("Add.").output == configured.Report(text="3")
        assert seen.triggers == ["begun", "functions_asked", "returned", "answered"]

    @pytest.mark.spec("3.25: a system prompt from a path")
    def test_a_system_prompt_from_a_path(self, paper, script):
        (paper / "paper.toml").write_text("agent_type='paper'\nprompts='prompts'\nsystem_path='paper/system'\n")
        client = script("Done.", "Done.")
        build_agent(paper / "paper.toml", client=client)("Write.")
        (paper / "paper.toml").write_text("agent_type='paper'\nsystem_path='prompts/paper/system.jinja'\n")
        build_agent(paper / "paper.toml", client=client)("Write.")
        assert [request.messages[0].text for request in client.requests] == ["You write.", "You write."]

    def test_a_kind_may_be_its_class(self, script):
        config = {"agent_type": "support.configured:Report"}
        with pytest.raises(ConfigError, match=r"agent_type: 'support.configured:Report' is no class of agents"):
            build_agent(config)
        with pytest.raises(ConfigError, match=r"agent_type: there is no 'Raport' in .*did you mean 'Report'\?"):
            build_agent({"agent_type": "support.configured:Raport"})
        with pytest.raises(ConfigError, match=r"agent_type: there is no module 'suport'"):
            build_agent({"agent_type": "suport:Report"})


class TestClients:
    def test_each_sub_agent_has_its_own(self, monkeypatch):
        client = {"api_key": "${EDITOR_KEY}", "base_url": "https://example.invalid/v1"}
        agent = build_agent(
            {"agent_type": "paper", "model": "openai:m", "agent_configs": {"editor": {"client": client}}}
        )
        with agent:
            endpoint = agent.agents["editor"].client._access.locate()
            assert endpoint.headers["authorization"] == f"Bearer {KEY}"
            assert agent.agents["author"].model == "openai:m"
        assert "closed" in repr(agent.agents["editor"].client)

    @pytest.mark.parametrize(
        ("client", "says"),
        [
            ({"api_key": KEY}, "client.api_key: a key is not written into a configuration: a variable, '${MY_KEY}'"),
            ({"headers": {"x-api-key": KEY}}, "client.headers: the header 'x-api-key' may be secret: a variable"),
            ({"api_key": [KEY]}, r"client.api_key: Input should be a valid string (given: ***)"),
            ({"api_key": "${NO_SUCH_KEY}"}, "client.api_key: the environment variable 'NO_SUCH_KEY' is not set"),
            ({"base_url": "x${EDITOR_KEY}"}, "client: base_url 'x***' is no base URL"),
        ],
    )
    def test_no_message_shows_a_key(self, client, says):
        with pytest.raises(ConfigError) as caught:
            build_agent({"agent_type": "paper", "model": "openai:m", "client": client})
        assert says in str(caught.value)
        assert KEY not in "".join(traceback.format_exception(caught.value))

    @pytest.mark.spec("2.35: a backend that is no HTTP wire has a name")
    def test_one_that_is_no_http_wire_has_a_name(self):
        asked = []
        register_client("cabin", lambda model: asked.append(model) or Script("Done."))
        agent = build_agent({"agent_type": "paper", "model": "cabin:big"})
        assert agent("Write.") == "Done."
        assert asked == ["big"]

    def test_an_unknown_one_is_named_with_those_there_are(self):
        register_client("cabin", lambda model: Script())
        agent = build_agent({"agent_type": "paper", "model": "cabn:big"})
        with pytest.raises(
            CallFailed, match=r"no provider or client 'cabn' is registered: did you mean 'cabin'\?"
        ) as e:
            agent("Write.")
        assert isinstance(e.value.__cause__, ConfigError)

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("openai", "a provider 'openai' already"),
            ("Cabin", "no name for a client"),
            ("a:b", "no name for a client"),
        ],
    )
    def test_a_name_that_cannot_be_used_is_refused(self, name, says):
        with pytest.raises(ConfigError, match=says):
            register_client(name, lambda model: Script())

    def test_what_is_no_client_is_refused(self):
        register_client("cabin", lambda model: "x")
        with pytest.raises(CallFailed, match="what the client 'cabin' was made as is 'x': a Client would be right"):
            build_agent({"agent_type": "paper", "model": "cabin:big"})("Write.")


class TestReferences:
    def test_they_are_replaced_where_they_are_used_and_nowhere_else(self, monkeypatch):
        monkeypatch.setenv("TONE", "terse")
        monkeypatch.setenv("ROUNDS", "7")
        monkeypatch.setenv("HEAT", "0.5")
        config = AgentConfig.of(
            {
                "agent_type": "paper",
                "model": "${MODEL:-x:y}",
                "system": "Be ${TONE}; $${TONE} costs ${env:HEAT} $",
                "limits": {"rounds": "${ROUNDS}"},
                "settings": {"temperature": "${HEAT}"},
                "profile": "${PROFILE:-creative}",
            }
        )
        near = build_agent(config).agents["editor"]
        assert (near.model, near.system) == ("x:y", "Be terse; ${TONE} costs 0.5 $")
        assert (near.limits.rounds, near.settings.temperature) == (7, 0.5)
        assert "terse" not in repr(config) + config.model_dump_json()
        assert config.system == "Be ${TONE}; $${TONE} costs ${env:HEAT} $"

    @pytest.mark.parametrize(
        ("key", "value", "says"),
        [
            ("limits", {"rounds": "${EDITOR_KEY}"}, "limits.rounds: the variable in '${EDITOR_KEY}' does not hold"),
            ("settings", {"cache": "${EDITOR_KEY}"}, "settings.cache: the variable in '${EDITOR_KEY}' does not hold"),
            ("profile", "${EDITOR_KEY}", "profile: no preset is called '${EDITOR_KEY}'"),
            ("system", "${1}", "system: ${1} cannot be filled in: ${VARIABLE} and ${VARIABLE:-default} can"),
            ("functions", ["${EDITOR_KEY}"], "functions[0]: "),
            ("system_path", "${EDITOR_KEY}", "system_path: "),
        ],
    )
    def test_one_that_does_not_fit_is_named_without_its_value(self, key, value, says):
        with pytest.raises(ConfigError) as caught:
            build_agent({"agent_type": "paper", "model": "x:y", key: value})
        assert says in str(caught.value)
        assert KEY not in "".join(traceback.format_exception(caught.value))


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
)


class TestBounds:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (LAUGHS, "more than 2000 values, with those that aliases repeat"),
            ("a: [" + "x," * 400_000 + "]", "more than 2000 values"),
            ("a: &a [*a]", "nested more than 50 deep"),
            ("a: " + "[" * 2000, "is not YAML: "),
            ("- " * 2000, "is not YAML: "),
            ("a: " + "1:" * 100_000 + "1", "a value of the kind int is not taken"),
            ("a: !!python/object/apply:os.system [ls]", "a value of the kind python/object/apply:os.system is not"),
            ("a: !!binary x", "kind binary is not taken"),
            ("model: x:y\nmodel: x:z", r"the key model is there twice (at line 2, column 1)"),
            ("1: x", "a key is no text: quotes make it one (at line 1, column 1)"),
            ("a: 'x", "found unexpected end of stream (at line 1"),
            ("a: b: c", "mapping values are not allowed here (at line 1, column 5)"),
            ("--- {}\n--- {}", "but found another document"),
            ("a: \x00", "a character that YAML does not allow"),
            ("a: *b", "found undefined alias 'b' (at line 1, column 4)"),
            ("<<: 3", "what is merged with '<<' is no mapping"),
        ],
        ids=lambda value: value[:20],
    )  # fmt: skip
    @pytest.mark.timeout(20)
    def test_yaml_is_read_within_bounds(self, tmp_path, monkeypatch, text, says):
        monkeypatch.setattr("fsm_agent.agents.config.yaml_file.MAX_VALUES", 2000)  # ten times as many take seconds
        (tmp_path / "a.yml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            build_agent(tmp_path / "a.yml")
        assert says in str(caught.value)
        assert str(tmp_path / "a.yml") in str(caught.value)

    @pytest.mark.timeout(20)
    def test_a_key_of_toml_has_a_bounded_number_of_parts(self, tmp_path):
        (tmp_path / "a.toml").write_text("x = 1\na" + ".a" * 400_000 + " = 1")
        with pytest.raises(ConfigError, match=r"is not TOML: a key has more than 1000 parts \(at line 2\)"):
            build_agent(tmp_path / "a.toml")

    def test_aliases_and_merges_within_them_are_taken(self, tmp_path):
        (tmp_path / "a.yaml").write_text(
            "agent_type: paper\nmodel: x:y\nagent_configs:\n  author: &a {limits: {rounds: 1}, system: Write.}\n"
            "  editor:\n    <<: *a\n    system: 2026-11-22\n"
        )
        near = build_agent(tmp_path / "a.yaml").agents["editor"]
        assert (near.limits.rounds, near.system) == (1, "2026-11-22")

    def test_a_message_shows_a_bounded_number_of_problems(self):
        with pytest.raises(ConfigError) as caught:
            AgentConfig.of({"x" * 100_000 + str(index): "y" * 100_000 for index in range(100)})
        assert len(str(caught.value)) < 20_000
        assert len(str(caught.value).splitlines()) <= MAX_PROBLEMS + 2

    def test_what_contains_itself_is_refused(self):
        config: dict[str, Any] = {"agent_type": "paper"}
        config["settings"] = {"extra_body": config}
        with pytest.raises(ConfigError, match="nested too deep"):
            AgentConfig.of(config)

    def test_without_pyyaml_an_error_says_what_to_install(self, tmp_path, monkeypatch):
        import sys

        from fsm_agent._internal.lazy_import import deferred

        monkeypatch.setitem(sys.modules, "yaml", None)
        monkeypatch.setattr("fsm_agent.agents.config.yaml_file.yaml", deferred("yaml"))
        (tmp_path / "a.yaml").write_text("model: x:y")
        with pytest.raises(ConfigError, match=r"YAML files need PyYAML: pip install 'fsm-agent\[yaml\]'"):
            AgentConfig.of(tmp_path / "a.yaml")


class TestLines:
    def test_a_value_of_several_lines_begins_on_its_first(self):
        text = '# one\n\nsystem = """\na = 1\n\n[b]\n"""\n\nstop = [\n  "a",\n\n  "b",\n]\n[limits] # x\nrounds = 3\n'
        lines = {key: Lines(text, tomllib.loads).find(key) for key in [("system",), ("stop",), ("limits", "rounds")]}
        assert lines == {("system",): 3, ("stop",): 9, ("limits", "rounds"): 15}
        assert Lines(text, tomllib.loads).find(("a",)) is None

    def test_a_big_file_is_not_searched_for_long(self, tmp_path, monkeypatch):
        monkeypatch.setattr("fsm_agent.agents.config.files.MAX_SEARCHED_CHARS", 500_000)
        text = "".join([f'x{index} = "{"y" * 90}"\n' for index in range(900)])
        (tmp_path / "a.toml").write_text(text)
        with pytest.raises(ConfigError) as caught:
            AgentConfig.of(tmp_path / "a.toml")
        lines = str(caught.value).splitlines()
        assert lines[1].startswith("  line 1, x0: ")
        assert lines[-2].startswith(f"  x{MAX_PROBLEMS - 1}: ")
        assert lines[-1] == "  … and more"


def test_the_schema_takes_what_is_right():
    schema = AgentConfig.model_json_schema()
    assert schema["additionalProperties"] is False
    assert "global" in schema["properties"]
    assert "$ref" not in json.dumps(schema["properties"]["settings"])
    rounds = schema["properties"]["limits"]["properties"]["rounds"]
    assert any(item.get("type") == "integer" for item in rounds["anyOf"])
    assert any("pattern" in item for item in rounds["anyOf"])


@pytest.mark.parametrize("format_", ["toml", "yaml", "json"])
def test_a_file_may_begin_with_the_mark_that_windows_writes(paper: Path, format_: str) -> None:
    file = paper / f"paper.{format_}"
    file.write_text(WRITERS[format_]({"agent_type": "paper", "system": "You write."}), encoding="utf-8-sig")
    assert build_agent(file, client=Script("ok")).agents["editor"].system == "You write."


def test_a_store_stands_beside_the_file_that_names_it(
    paper: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (paper / "paper.toml").write_text("agent_type = 'paper'\nstore = 'runs.db'\n")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    agent = build_agent(paper / "paper.toml", client=Script("ok")).agents["editor"]
    agent.call("?", run_id="r1")
    assert (paper / "runs.db").exists()
    assert not (elsewhere / "runs.db").exists()
