"""Makes the agents that a configuration describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from fsm_agent._internal.values import Value, from_data
from fsm_agent.agents.config.agent_config import LIMITS, SETTINGS, AgentConfig, SubAgentConfig
from fsm_agent.agents.config.named import loaded, named_function
from fsm_agent.agents.config.source import Keys
from fsm_agent.agents.config.tables import PRESETS, Table, filled
from fsm_agent.call.limits import Limits
from fsm_agent.clients.client import Client
from fsm_agent.clients.registered import named_client
from fsm_agent.errors import UsageError
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.library import named_prompt
from fsm_agent.prompts.prompt import Prompt

V = TypeVar("V", bound=Value)

KEYS_ALONE = ("profile", "system_path", "prompts")  # attributes of a class that are not arguments of an Agent


class SubAgent:
    """The part of a configuration that is for one sub-agent: its own keys, then the agent's, then ``global``.

    Args:
        config: The configuration.
        name: The sub-agent.
        in_code: The options from its class; the configuration overrides them.
    """

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
        """Return the arguments of its agent.

        Args:
            owner: The name of the agent whose sub-agent it is.
            client: Asks the model, whatever the configuration says.

        Raises:
            ConfigError: The configuration names something that is missing or wrong.
        """
        options = {name: value for name, value in self._in_code.items() if name not in KEYS_ALONE}
        options["limits"] = self._value(LIMITS, "limits", Limits())
        options["settings"] = self._value(
            SETTINGS, "settings", Settings(), PRESETS.get(self._text("profile") or "", {})
        )
        for key, make in _MAKERS.items():
            if found := self._find(key):
                keys, value = found
                options[key] = self._objects(keys, value, make)
        if (system := self._system()) is not None:
            options["system"] = system
        if finalizer := self._text("finalizer"):
            options["finalizer"] = finalizer
        if found := self._find("store"):
            options["store"] = self._config.folder / filled(found[1])
        options["model"] = client or self._model(owner)
        return options

    def _objects(self, keys: Keys, named: Any, make: Callable[[Any], Any]) -> Any:
        """Return the object that a value names, or the list of those."""
        if isinstance(named, list):
            return [self._objects((*keys, index), item, make) for index, item in enumerate(named)]
        with self._placed(keys):
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
        with self._placed(keys):
            return named_client(model, **present)

    def _system(self) -> str | Prompt | None:
        for keys, layer in self._layers:
            if layer.system:
                return str(filled(layer.system))
            if layer.system_path:
                with self._placed((*keys, "system_path")):
                    return prompt_of(self._config, layer.system_path)
        if path := self._in_code.get("system_path"):
            with self._placed(("system_path",)):
                return prompt_of(self._config, path, self._in_code.get("prompts"))
        return None

    def _find(self, key: str) -> tuple[Keys, Any] | None:
        """Return the nearest value of a key, and where it stands."""
        for keys, layer in self._layers:
            if key in layer.model_fields_set and (value := getattr(layer, key)) is not None:
                return (*keys, key), value
        return None

    def _text(self, key: str) -> str | None:
        found = self._find(key)
        return self._in_code.get(key) if found is None else str(filled(found[1]))

    def _value(self, table: Table, key: str, default: V, preset: Mapping[str, Any] | None = None) -> V:
        """Return a value whose fields come from the class, then from outer tables, then from inner ones."""
        fields = {**(preset or {})}
        if (of_class := self._in_code.get(key)) is not None:
            fields |= table.read(getattr(AgentConfig.of({key: of_class}), key))
        for keys, layer in reversed(self._layers):
            with self._placed((*keys, key)):
                fields |= table.read(getattr(layer, key))
        made: V = from_data(fields, type(default))
        return made

    @contextmanager
    def _placed(self, keys: Keys) -> Iterator[None]:
        with placed(self._config, keys):
            yield


@contextmanager
def placed(config: AgentConfig, keys: Keys) -> Iterator[None]:
    """Add the place in the configuration to errors raised inside."""
    try:
        yield
    except (UsageError, TypeError) as error:
        text = str(error) if isinstance(error, UsageError) else f"it cannot be made: {error}"
        shows_no_value = config.secrets.mask(text) == text
        raise config.error(keys, f": {text}") from (error if shows_no_value else None)


def prompt_of(config: AgentConfig, path: str, prompts: Any = None) -> Prompt[Any]:
    """Return the prompt of this path: ``root/name``, or a file that ends in ``.jinja``.

    Without a folder of prompts, ``prompts`` beside the file of the configuration is taken if that holds the root.

    Args:
        config: The configuration.
        path: The path.
        prompts: The folder of prompts, if the configuration names none.

    Raises:
        PromptError: There is no such prompt.
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


def _object(named: Any) -> Any:
    """Return the object that is named; a class is made without arguments."""
    found = loaded(filled(named)) if isinstance(named, str) else named
    return found() if isinstance(found, type) else found


def _type(named: Any) -> Any:
    return loaded(filled(named)) if isinstance(named, str) else named


def _function(named: Any) -> Any:
    return named_function(filled(named)) if isinstance(named, str) else named


_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "functions": _function,
    "output": _type,
    "approve": _object,
    "stop_when": _object,
    "check": _object,
    "results": _object,
    "prices": _object,
    "hooks": _object,
    "context": _object,
    "keep": _object,
}
