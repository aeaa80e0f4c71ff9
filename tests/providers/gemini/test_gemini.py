"""Does the codec of Gemini say what a request means, and to the right address?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.gemini_bodies import CODEC, call, chunk, response, sse, streamed, text, whole
from support.wire_samples import ADD, PNG, USER, WAIT, City
from test_gemini_contents import CALLS, OPAQUE, contents

from fsm_agent.call import Request
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import Document, FunctionResult, Image, Message, Opaque, Settings, Text
from fsm_agent.prompts import Output
from fsm_agent.providers import GeminiProfile, Profile

SYSTEM = Message.of("system", "Be ", "terse.")


def encoded(*messages: Message, profile: Profile | None = None, **request: Any) -> dict[str, Any]:
    asked = Request(messages=messages or (USER,), **request)
    return json.loads(CODEC.encode(asked, model="m1", profile=profile or GeminiProfile(), stream=False))


def config(profile: Profile | None = None, **settings: Any) -> Any:
    return encoded(settings=Settings(**settings), profile=profile).get("generationConfig")


def test_the_shortest_request_has_contents_alone() -> None:
    shortest = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    assert encoded() == shortest
    assert json.loads(CODEC.encode(Request(messages=[USER]), model="m1", profile=Profile(), stream=True)) == shortest


def test_model_is_a_place() -> None:
    for model, place in [
        ("gemini-2.5-flash", "/models/gemini-2.5-flash"),
        ("models/gemini-2.5-flash", "/models/gemini-2.5-flash"),
        ("tunedModels/mine-7", "/tunedModels/mine-7"),
        ("publishers/google/models/gemini-2.5-pro", "/publishers/google/models/gemini-2.5-pro"),
        ("projects/p/locations/l/endpoints/7", "/projects/p/locations/l/endpoints/7"),
        ("claude@2026", "/models/claude@2026"),
        ("a/b?c#d e:f%", "/models/a%2Fb%3Fc%23d%20e%3Af%25"),
        ("models/a?key=b:c%2F", "/models/a%3Fkey%3Db%3Ac%252F"),
        ("größe", "/models/gr%C3%B6%C3%9Fe"),
    ]:
        assert CODEC.path(model, stream=False) == f"{place}:generateContent"
        assert CODEC.path(model, stream=True) == f"{place}:streamGenerateContent?alt=sse"


def test_model_is_not_another_place() -> None:
    for model in ["", "..", "models/", "models/../files", "publishers//models/x", "tunedModels/."]:
        with pytest.raises(ConfigError, match=f"the model: .*'{model}'"):
            CODEC.path(model, stream=False)


def test_key_is_a_header() -> None:
    assert CODEC.headers("AIzaKey") == {"x-goog-api-key": "AIzaKey"}
    assert CODEC.headers("ya29.token") == {"authorization": "Bearer ya29.token"}
    assert CODEC.headers(None) == {}


def test_system_messages_are_the_instruction() -> None:
    body = encoded(SYSTEM, USER, Message.of("system", ""), Message.of("system", "In English."))
    assert body["systemInstruction"] == {"parts": [{"text": "Be terse."}, {"text": "In English."}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


def test_system_message_is_the_users_where_there_is_no_other_way() -> None:
    first = {"role": "user", "parts": [{"text": "Be terse."}]}
    assert encoded(SYSTEM) == {"contents": [first]}
    body = encoded(USER, SYSTEM, profile=Profile(system_role="user"))
    assert body == {"contents": [first, {"role": "user", "parts": [{"text": "hi"}]}]}


def test_functions_are_declared() -> None:
    body = encoded(functions=(ADD, WAIT, Function(name="now")))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "add",
                    "description": "Add two numbers.",
                    "parametersJsonSchema": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                        "required": ["a", "b"],
                        "additionalProperties": False,
                    },
                },
                {
                    "name": "wait",
                    "description": "Wait.",
                    "parametersJsonSchema": {
                        "type": "object",
                        "properties": {"seconds": {"type": "number", "description": "(default: 1.0)"}},
                        "additionalProperties": False,
                    },
                },
                {"name": "now", "parametersJsonSchema": {"type": "object", "properties": {}}},
            ]
        }
    ]


def test_choice_of_functions() -> None:
    for choice, strict, calling in (
        ("auto", True, {"mode": "VALIDATED"}),
        ("auto", False, {"mode": "AUTO"}),
        ("required", True, {"mode": "ANY"}),
        ("none", True, {"mode": "NONE"}),
        ("wait", True, {"mode": "ANY", "allowedFunctionNames": ["wait"]}),
    ):
        profile = GeminiProfile(strict_functions=strict)
        body = encoded(functions=(ADD, WAIT), tool_choice=choice, profile=profile)
        assert body["toolConfig"] == {"functionCallingConfig": calling}
        assert len(body["tools"][0]["functionDeclarations"]) == 2


def test_schema_goes_out_natively() -> None:
    assert encoded(output=Output(City))["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "country": {"type": "string"}},
            "additionalProperties": False,
            "required": ["name", "country"],
        },
    }


def test_settings_have_their_names() -> None:
    settings = {"temperature": 0.0, "top_p": 0.5, "max_tokens": 7, "stop": ("x",), "seed": 0, "top_logprobs": 2}
    said = {
        "temperature": 0.0,
        "topP": 0.5,
        "maxOutputTokens": 7,
        "stopSequences": ["x"],
        "seed": 0,
        "responseLogprobs": True,
        "logprobs": 2,
    }
    assert config(**settings) == said
    without = config(GeminiProfile(temperature=False), **settings)
    assert without == {key: value for key, value in said.items() if key not in ("temperature", "topP")}
    assert config(top_logprobs=0) == {"responseLogprobs": True}
    assert config(parallel_function_calls=True) is None


LEVELS, TOKENS = GeminiProfile(), GeminiProfile(reasoning="budget", reasoning_off=True)


@pytest.mark.parametrize(
    ("profile", "effort", "thinking"),
    [
        (LEVELS, "low", {"thinkingLevel": "LOW", "includeThoughts": True}),
        (Profile(), "minimal", {"thinkingLevel": "MINIMAL", "includeThoughts": True}),
        (TOKENS, "medium", {"thinkingBudget": 8_192, "includeThoughts": True}),
        (TOKENS, "none", {"thinkingBudget": 0}),
    ],
)
def test_effort_is_a_level_or_a_budget(profile: Profile, effort: str, thinking: dict[str, Any]) -> None:
    assert config(profile, reasoning_effort=effort) == {"thinkingConfig": thinking}
    assert config(GeminiProfile(reasoning=None), reasoning_effort="none") is None


def test_a_function_whose_name_gemini_refuses_is_refused_here() -> None:
    for name in ["1password__get", "-add", "9"]:
        with pytest.raises(UsageError, match=f"{name!r}.*{'_' + name!r}"):
            encoded(functions=(ADD, Function(name=name)))
        assert encoded(functions=(Function(name="_9-a"),))


@pytest.mark.parametrize(
    ("messages", "request_", "profile", "name"),
    [
        (
            (USER,),
            {"functions": (ADD,), "settings": Settings(parallel_function_calls=False)},
            Profile(),
            "parallel_function_calls: .*False",
        ),
        ((USER,), {"settings": Settings(reasoning_effort="none")}, LEVELS, "reasoning_effort: .*'none'"),
        ((USER,), {"settings": Settings(reasoning_effort="max")}, TOKENS, "reasoning_effort: .*'max'"),
        (
            (USER,),
            {"settings": Settings(reasoning_effort="low")},
            GeminiProfile(reasoning=None),
            "reasoning_effort: .*'low'",
        ),
    ],
)
def test_what_cannot_be_said_is_refused_before_it_is_sent(
    messages: tuple[Message, ...], request_: dict[str, Any], profile: Profile, name: str
) -> None:
    with pytest.raises(UsageError, match=name):
        encoded(*messages, profile=profile, **request_)


def test_what_was_answered_can_be_sent_back() -> None:
    parts = [
        text("hm", thought=True),
        text("", thought=True, thoughtSignature="MQ=="),
        text("Well.", thoughtSignature="Mg=="),
        call("add", {"a": 1}, "Mw==", id="x"),
        call("add", {"a": 2}),
        OPAQUE,
        text("", thoughtSignature="NA=="),
    ]
    for reply in (whole(*parts), streamed(sse(*[chunk(part) for part in parts], response()))[0]):
        assert contents(reply.message) == [{"role": "model", "parts": parts[1:]}]


DOCUMENTS = (Document.of(b"%PDF-"), Document.of(b"# Hi", name="a.md"), Document.of("https://x/y.pdf"))
SHOWN = (Image.of(PNG), *DOCUMENTS)


@pytest.mark.nightly
@pytest.mark.parametrize("output", [str, City])
def test_requests_are_what_the_official_sdk_takes(output: Any) -> None:
    types = pytest.importorskip("google.genai.types", reason="the SDK is not installed")
    settings = Settings(
        temperature=0.0,
        top_p=0.5,
        max_tokens=7,
        stop=("x",),
        seed=1,
        top_logprobs=2,
        reasoning_effort="low",
        extra_body={"generationConfig": {"topK": 3}},
    )
    body = encoded(
        SYSTEM,
        Message.of("user", "look", *SHOWN, Image(url="https://x/y.png"), "again"),
        Message.of("assistant", Text("Well.", "c2ln"), *CALLS, Opaque(wire="gemini", data=OPAQUE)),
        Message.of("tool", *[FunctionResult(id=call.id, name="add", text="", attachments=SHOWN) for call in CALLS]),
        functions=(ADD, WAIT),
        tool_choice="add",
        output=Output(output),
        settings=settings,
    )
    kinds = {
        "contents": types.Content,
        "systemInstruction": types.Content,
        "tools": types.Tool,
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    assert body.keys() == kinds.keys()
    for key, value in body.items():
        for said in value if isinstance(value, list) else [value]:
            read = kinds[key].model_validate(said)  # which forbids what it does not know
            assert json.loads(read.model_dump_json(by_alias=True, exclude_none=True)) == said
