"""Agent configurations: their keys and presets, the objects that they name, and the arguments that they produce.

`SubAgent` decides which value of a key wins: the sub-agent's own, then the agent's, then that of ``global``, then the
class's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from inspect import get_annotations
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeAlias, Unpack, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema, from_json

from fsm_agent._internal.masking import MASK, Secrets, is_secret_name
from fsm_agent._internal.structs import Value, differing, field_names, from_data
from fsm_agent._internal.text import expanded, has_reference, hint, referenced
from fsm_agent.agents.config_files import read_file
from fsm_agent.agents.options import ConfigOverrides
from fsm_agent.call.limits import Limits
from fsm_agent.clients.named_clients import named_client
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.foreign_names import WORDS, remedy
from fsm_agent.functions.function import FUNCTIONS, Function
from fsm_agent.messages.hosted_tools import HostedTool
from fsm_agent.messages.reply import Settings
from fsm_agent.named_objects import loaded
from fsm_agent.prompts.library import named_prompt
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.environment import Client
from fsm_agent.validation import invalid, safe_repr

Keys: TypeAlias = tuple[str | int, ...]  # the keys that lead to a value
Problem: TypeAlias = tuple[Keys, str]  # the keys of a mistake, and the text after them

MAX_PROBLEMS = 20
MAX_KEY_CHARS = 60
KEYS_ALONE = ("profile", "system_path", "prompts")  # class attributes that are not arguments of an Agent
# Anthropic's newer models refuse `temperature` with `top_p`, so a preset has only `temperature`.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "creative": {"temperature": 1.0},
    "balanced": {"temperature": 0.7},
    "deterministic": {"temperature": 0.0, "seed": 1},
}
_WORDS = {  # words of other libraries, and keys that belong elsewhere
    **WORDS,
    **{name: f"settings.{name}" for name in field_names(Settings)},
    **{name: f"limits.{name}" for name in field_names(Limits)},
    **dict.fromkeys(("api_key", "base_url"), "a key of client"),
    **dict.fromkeys(("agents", "sub_agents"), "agent_configs"),
    "system_prompt_path": "system_path",
    "expertise": "system",
    "defaults": "global",
}


# References to variables of the environment


def filled(value: Any) -> Any:
    """Return a value with the references to variables in its strings replaced.  ``$${`` stands for a literal ``${``."""
    match value:
        case str() if "${" in value:
            return "${".join([expanded(part, os.environ) for part in value.split("$${")])
        case list() | tuple():
            return [filled(item) for item in value]
        case dict():
            return {key: filled(item) for key, item in value.items()}
    return value


def _texts(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, str]]:
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, list | tuple | Mapping):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _texts(item, (*keys, key if isinstance(key, int) else str(key)))


def _unfilled(value: Any) -> Iterator[Problem]:
    for keys, text in _texts(value):
        try:
            filled(text)
        except ValueError as error:
            yield keys, f": {error}"


# Keys.  The message of a validator's ValueError follows the key.


def _reference(value: str) -> str:
    if not has_reference(value):
        raise ValueError(": expected a variable such as '${MY_KEY}', got a key; put the key into the environment")
    return value


def _open_headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if is_secret_name(name) and not has_reference(text):
            what = f"the header {name!r:.60}, which may be secret"
            raise ValueError(f": expected a variable such as '${{MY_KEY}}' for {what}")
    return value


def _known_profile(value: str) -> str:
    if (name := filled(value)) not in PRESETS:
        raise ValueError(f": unknown preset {safe_repr(value)}{hint(name, PRESETS)}")
    return value


def _typed(kind: type[Value], name: str, value: Any) -> Any:
    """Return the value for a `Value`'s field, with references replaced.  A variable may hold a number."""
    text = filled(value)
    try:
        from_data({name: text}, kind)
    except ValueError:
        if not has_reference(value):
            raise
        text = from_json(text)
        from_data({name: text}, kind)
    return text


def _check_field(kind: type[Value], name: str, value: Any) -> Any:
    """Check the value of a table's key, and return it unchanged."""
    try:
        _typed(kind, name, value)
    except (ValueError, RecursionError) as error:
        if has_reference(value):  # a message must not show its value
            expected = get_annotations(kind)[name]
            raise ValueError(f": expected {expected} in the variable of {safe_repr(value)}") from None
        text = str(error).removeprefix("the document: ").removeprefix(f"{kind.__name__.lower()}.").removeprefix(name)
        tools = get_args(HostedTool)
        if unknown := re.search(r"unknown field (\S{1,60})", text):
            text += hint(unknown[1], {word for tool in tools for word in tool.__struct_fields__})
        elif ".kind: " in text:
            text += f"; known: {', '.join([tool.__struct_config__.tag for tool in tools])}"
        raise ValueError(text if text.startswith((":", "[", ".")) else f": {text}") from None
    return value


class _Keys(BaseModel):
    """The keys of a configuration.  Unknown keys are errors, and values are not converted."""

    # Most programs have no configuration, so the models are built when the first one is read.
    # Their errors show no input, which may be a secret.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, hide_input_in_errors=True)

    def _given(self) -> dict[str, Any]:
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        return {key: _plain(getattr(self, name)) for name, key in names.items() if name in self.model_fields_set}

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return [(name, _masked(name, getattr(self, name))) for name in sorted(self.model_fields_set)]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value._given() if isinstance(value, _Keys) else value


class _Table:
    """The type for a table whose keys are the fields of a `Value`, each of which is checked separately."""

    def __init__(self, kind: type[Value]) -> None:
        self.kind = kind

    @cached_property
    def model(self) -> type[BaseModel]:
        fields: dict[str, Any] = {
            name: (Annotated[Any, AfterValidator(partial(_check_field, self.kind, name))], None)
            for name in field_names(self.kind)
        }
        return create_model(self.kind.__name__, __base__=_Keys, **fields)

    def read(self, table: Any) -> dict[str, Any]:
        """Check the table, and return it unchanged."""
        given = differing(table) if isinstance(table, self.kind) else table
        self.model.model_validate(given)
        return dict(given)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names: dict[str, Any] = {name: {} for name in field_names(self.kind)}
        return {"type": "object", "properties": names, "additionalProperties": False}


_NAME = WithJsonSchema({"type": "string"})
Name: TypeAlias = Annotated[Any, _NAME]  # an object as module:name, or the object itself in code
Names: TypeAlias = Annotated[list[Name], Field(strict=False)]  # or a tuple, in code


class ClientConfig(_Keys):
    """How to reach a model."""

    api_key: Annotated[str, AfterValidator(_reference)] | None = Field(
        default=None, description="a variable of the environment, '${MY_KEY}'; by default the provider's"
    )
    base_url: str | None = Field(default=None, description="by default the provider's")
    headers: Annotated[dict[str, str], AfterValidator(_open_headers)] = Field(
        default_factory=dict, description="sent with every request"
    )
    wire: str | None = Field(default=None, description="of a provider with two; by default what a request needs")


class SubAgentConfig(_Keys):
    """The configuration of a sub-agent.

    If a key is not set here, the agent's value applies, then the value in ``global``, then that of the class.
    """

    model: str | None = Field(default=None, description="'provider:model'")
    client: ClientConfig | None = Field(default=None, description="how the model is reached")
    system: str = Field(default="", description="the system prompt")
    system_path: str | None = Field(
        default=None, description="the system prompt by its path, as root/name, or a file that ends in .jinja"
    )
    functions: Names = Field(default_factory=list, description="registered functions by name, or as module:name")
    output: Name = Field(default=None, description="the type of the answer, as module:name")
    profile: Annotated[str, AfterValidator(_known_profile)] | None = Field(
        default=None,
        description="a preset of settings, over which those that are set win",
        json_schema_extra={"examples": list(PRESETS)},
    )
    settings: Annotated[dict[str, Any], _Table(Settings)] = Field(default_factory=dict, description="see `Settings`")
    limits: Annotated[dict[str, Any], _Table(Limits)] = Field(default_factory=dict, description="see `Limits`")
    approve: Name = Field(default=None, description="who is asked about function calls, as module:name")
    hooks: Names = Field(default_factory=list, description="listeners to events, as module:name")
    finalizer: str = Field(default="", description="words the answer once more, with {{ answer }} in it")
    stop_when: Name = Field(default=None, description="ends a call at a reply, as module:name")
    check: Name = Field(default=None, description="judges each answer, as module:name")
    context: Names = Field(default_factory=list, description="passes, and perhaps a Budget at the end, as module:name")
    keep: Names = Field(
        default_factory=list, description="passes that choose what the next turn inherits, as module:name"
    )
    results: Name = Field(default=None, description="how results of functions are changed, as module:name")
    prices: Name = Field(default=None, description="what the model's tokens cost, as module:name")
    store: str | None = Field(default=None, description="what keeps calls as runs: a file, or an address of Postgres")

    @model_validator(mode="after")
    def _one_system_prompt(self) -> SubAgentConfig:
        if self.system and self.system_path:
            raise ValueError(": expected either system or system_path, got both; remove one")
        return self


class AgentConfig(SubAgentConfig):
    """The configuration of an agent, as data for `build_agent`.  Unknown keys are errors.

    Strings may refer to environment variables as ``${VAR}`` or ``${VAR:-default}``.  A configuration stores and shows
    the reference, never the value.

    Examples:
        >>> config = AgentConfig(model="openai:gpt-5-mini", limits={"rounds": 8})
        >>> config.model
        'openai:gpt-5-mini'
    """

    schema_: str | None = Field(default=None, alias="$schema", description="for editors")
    agent_type: str | None = Field(default=None, description="the registered kind, or its class as module:name")
    name: str | None = Field(default=None, description="for traces and snapshots; the kind's name by default")
    prompt: Any = Field(
        default=None,
        description="the prompt of a task, {{ task }} in it, by its path, as root/name, or a file that ends in .jinja",
        json_schema_extra={"type": "string"},
    )
    prompts: str | None = Field(default=None, description="the folder of prompts; relative to the file")
    global_: SubAgentConfig = Field(
        default_factory=SubAgentConfig, alias="global", description="of every sub-agent that does not set it itself"
    )
    agent_configs: dict[str, SubAgentConfig] = Field(default_factory=dict, description="by sub-agent")

    _file: Path | None = PrivateAttr()

    def model_post_init(self, file: Any, /) -> None:
        self._file = file if isinstance(file, Path) else None  # the context of the validation in `of`

    @classmethod
    def of(cls, config: Config, **overrides: Unpack[ConfigOverrides]) -> AgentConfig:
        """Return a checked configuration.

        Args:
            config: A configuration, a mapping, or the path to a ``.toml``, ``.yaml`` or ``.json`` file.
            overrides: Keys that replace those in ``config``.  Tables are merged key by key.

        Raises:
            ConfigError: If the configuration is invalid, or the file does not exist.  The error names the file and each
                wrong key.
        """
        file: Path | None = None
        values: Any = config
        if isinstance(config, AgentConfig):
            values, file = config._given(), config._file
        elif isinstance(config, str | Path):
            file = Path(config).absolute()  # the program may change its folder before the paths are used
            values = read_file(file)
        if not isinstance(values, Mapping):
            where = f" in {str(config)!r}" if file is not None else ""
            raise invalid(f"the agent's configuration{where}", values, "a mapping, or the path of a file", ConfigError)
        values = _changed(values, overrides)
        try:
            if missing := [*islice(_unfilled(values), MAX_PROBLEMS + 1)]:
                raise _error(file, values, missing)
            return cls.model_validate(values, context=file)
        except ValidationError as error:
            raise _error(file, values, map(_problem, error.errors(include_url=False))) from None
        except RecursionError:
            raise _error(file, {}, [((), "expected a flatter configuration, got one nested too deep")]) from None

    def error(self, keys: Keys, text: str) -> ConfigError:
        """Return the error for a mistake in this configuration, without the values of variables.

        Args:
            keys: The keys that lead to the mistake.
            text: The text that follows the keys in the message, such as ": expected 0 or more, got -1".
        """
        return _error(self._file, self._given(), [(keys, text)])

    @property
    def secrets(self) -> Secrets:
        """The values of the variables that the configuration refers to."""
        return _secrets(self._given())

    @property
    def folder(self) -> Path:
        """The folder that paths in the configuration are relative to."""
        return Path() if self._file is None else self._file.parent

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value of one of the agent's own keys, with references replaced."""
        value = getattr(self, key)
        return default if value is None else filled(value)


Config: TypeAlias = AgentConfig | Mapping[str, Any] | str | Path


def keys_of(kind: type[BaseModel]) -> list[str]:
    """Return the keys of a configuration, as written."""
    return [field.alias or name for name, field in kind.model_fields.items()]


def _changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    changed = dict(values)
    for key, change in changes.items():
        known = changed.get(key)
        both = isinstance(known, Mapping) and isinstance(change, Mapping)
        changed[key] = _changed(known, change) if both else change  # type: ignore[arg-type]
    return changed


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked("", item) for item in value]
    return MASK if is_secret_name(name) and isinstance(value, str) and not has_reference(value) else value


# Errors


def _secrets(values: Any) -> Secrets:
    return Secrets([value for _, text in _texts(values) for value in referenced(text, os.environ)])


def _error(file: Path | None, values: Any, problems: Iterable[Problem]) -> ConfigError:
    secrets = _secrets(values)
    found = [f"{_dotted(keys)}{secrets.mask(text)}" for keys, text in islice(problems, MAX_PROBLEMS + 1)]
    lines = ["  " + problem.removeprefix(": ") for problem in found]  # a problem without keys concerns the whole
    if len(lines) > MAX_PROBLEMS:
        lines[-1] = "  … and more"
    where = "" if file is None else f" in {str(file)!r}"
    return ConfigError("\n".join([f"the agent's configuration{where} is not valid:", *lines]))


def _dotted(keys: Keys) -> str:
    steps = [f"[{key}]" if isinstance(key, int) else f".{key[:MAX_KEY_CHARS]}" for key in keys[:MAX_KEY_CHARS]]
    return "".join(steps).removeprefix(".")


def _problem(item: Any) -> Problem:
    """Describe a problem that pydantic found, in this package's terms."""
    keys: Keys = item["loc"]
    if item["type"] == "value_error":
        return keys, str(item["ctx"]["error"])
    if item["type"] == "extra_forbidden":
        word, known = str(keys[-1])[:MAX_KEY_CHARS], _keys_beside(keys)
        if "model" in known and word in keys_of(AgentConfig):
            return keys, ": expected a key of a sub-agent, got one of the whole agent; call other agents in `answer`"
        words = {} if "client" in keys else _WORDS if "model" in known else WORDS
        return keys, f": {word!r} is unknown{remedy(word, known, words)}"
    if keys[-1] == "model" and hasattr(item["input"], "acomplete"):
        return keys, f": expected 'provider:model', got {safe_repr(item['input'])}; pass it as client=…"
    given = MASK if any(is_secret_name(str(key)) for key in keys) else safe_repr(item["input"])
    return keys, f": {item['msg'].replace('Input should be', 'expected')}, got {given}"


def _keys_beside(keys: Keys) -> list[str]:
    """Return the keys that are allowed in the same table as the last key."""
    if "settings" in keys[:-1] or "limits" in keys[:-1]:
        return list(field_names(Settings if "settings" in keys else Limits))
    kind = ClientConfig if "client" in keys[:-1] else AgentConfig if len(keys) == 1 else SubAgentConfig
    return sorted(keys_of(kind))


@contextmanager
def placed(config: AgentConfig, keys: Keys) -> Iterator[None]:
    """Add the position in the configuration to errors that are raised inside the block."""
    try:
        yield
    except (UsageError, TypeError) as error:
        text = str(error) if isinstance(error, UsageError) else f"it cannot be made: {error}"
        shows_no_value = config.secrets.mask(text) == text
        raise config.error(keys, f": {text}") from (error if shows_no_value else None)


# Arguments of agents


class SubAgent:
    """One sub-agent's configuration, with its fallbacks: the agent's keys, ``global``, and the class."""

    def __init__(self, config: AgentConfig, name: str, in_code: Mapping[str, Any]) -> None:
        self._config = config
        self._name = name
        self._in_code = in_code
        own = config.agent_configs.get(name, SubAgentConfig())
        self._layers: tuple[tuple[Keys, SubAgentConfig], ...] = (
            (("agent_configs", name), own),
            ((), config),
            (("global",), config.global_),
        )

    def arguments(self, owner: str, client: Client | None) -> dict[str, Any]:
        """Return the arguments for the sub-agent's `Agent`.

        A given client replaces the configured model.
        """
        options = {name: value for name, value in self._in_code.items() if name not in KEYS_ALONE}
        options["limits"] = self._table("limits", Limits, {})
        options["settings"] = self._table("settings", Settings, PRESETS.get(self._text("profile") or "", {}))
        for key, make in _MAKERS.items():
            if found := self._find(key):
                options[key] = self._made(*found, make)
        if (system := self._system()) is not None:
            options["system"] = system
        if finalizer := self._text("finalizer"):
            options["finalizer"] = finalizer
        if found := self._find("store"):
            store = filled(found[1])
            options["store"] = store if "://" in store else self._config.folder / os.path.expanduser(store)
        options["model"] = client or self._model(owner)
        return options

    def _made(self, keys: Keys, named: Any, make: Callable[[Any], Any]) -> Any:
        """Return the object or objects that a value names."""
        if isinstance(named, list):
            return [self._made((*keys, index), item, make) for index, item in enumerate(named)]
        with placed(self._config, keys):
            return make(named)

    def _model(self, owner: str) -> str | Client:
        model = self._text("model")
        if model is None:
            problem = f": expected one for the sub-agent {self._name!r} of {owner!r}, got none; set 'provider:model'"
            raise self._config.error(("model",), problem)
        found = self._find("client")
        if found is None or not isinstance(model, str):
            return model
        keys, table = found
        present = {name: filled(getattr(table, name)) for name in table.model_fields_set if getattr(table, name)}
        with placed(self._config, keys):
            return named_client(model, **present)

    def _system(self) -> str | Prompt | None:
        for keys, layer in self._layers:
            if layer.system:
                return str(filled(layer.system))
            if layer.system_path:
                with placed(self._config, (*keys, "system_path")):
                    return prompt_of(self._config, layer.system_path)
        if path := self._in_code.get("system_path"):
            with placed(self._config, ("system_path",)):
                return prompt_of(self._config, path, self._in_code.get("prompts"))
        return None

    def _find(self, key: str) -> tuple[Keys, Any] | None:
        """Return the most specific value of a key, and its position."""
        for keys, layer in self._layers:
            if key in layer.model_fields_set and (value := getattr(layer, key)) is not None:
                return (*keys, key), value
        return None

    def _text(self, key: str) -> str | None:
        found = self._find(key)
        return self._in_code.get(key) if found is None else str(filled(found[1]))

    def _table(self, key: str, kind: type[Value], preset: Mapping[str, Any]) -> Any:
        """Return a value whose fields come from the class, then outer tables, then inner tables; later ones win."""
        in_code = self._in_code.get(key)
        tables = [{} if in_code is None else getattr(AgentConfig.of({key: in_code}), key)]
        tables += [getattr(layer, key) for _, layer in reversed(self._layers)]
        fields = {name: _typed(kind, name, value) for table in tables for name, value in table.items()}
        return from_data({**preset, **fields}, kind)


def prompt_of(config: AgentConfig, path: str, prompts: Any = None) -> Prompt[Any]:
    """Return the prompt with this path: ``root/name``, or a ``.jinja`` file.

    The prompt is read from the configured folder of prompts or, if none is configured, from the class's ``prompts``.
    If neither is set, it is read from the folder ``prompts`` next to the configuration file, provided that this folder
    contains the root.
    """
    if "{{" in path or "\n" in path:
        raise UsageError(
            f"expected the path of a prompt, got the template {path!r:.80}; pass prompt=Prompt({path!r:.40})"
        )
    folder, named = config.value("prompts", prompts), filled(path)
    if folder is None and (config.folder / "prompts" / named.partition("/")[0]).is_dir():
        folder = "prompts"
    directory = None if folder is None else config.folder / folder
    return named_prompt(named, folder=config.folder, directory=directory)


# Objects by their names


def _object(named: Any) -> Any:
    found = _type(named)
    return found() if isinstance(found, type) else found


def _type(named: Any) -> Any:
    return loaded(filled(named)) if isinstance(named, str) else named


def _function(named: Any) -> Any:
    """Return a function, given a registered name or ``module:name``."""
    if not isinstance(named, str):
        return named
    name = filled(named)
    return Function.of(loaded(name)) if ":" in name else FUNCTIONS.find(name)


_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "functions": _function,
    "output": _type,
    **dict.fromkeys(("approve", "stop_when", "check", "results", "prices", "hooks", "context", "keep"), _object),
}
