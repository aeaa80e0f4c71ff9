"""Count the right function calls of the embedded model: ``python benchmarks/small_model_functions.py [CASES ...]``.

Each CASES is a file of function-calling cases, one JSON object a line (``question``, ``functions``, and
``expected_calls`` with the accepted values of each argument); ``bfcl.jsonl`` of the recordings by default.  Of these,
the cases that want one call are asked three ways:

bare       the server's own function calling
worked     the same, behind two worked turns made from the schemas of the offered functions
guided     as the client has it: chosen, then filled in argument by argument

Then the questions that no function answers, and the ten own ones of ``tests/support/own_functions.py``.  Calls are
compared by structure: the function, every required argument, and no argument that is not accepted.  Optional arguments
that the question states are counted by themselves.  A request that fails is an error: neither a call nor none.
``--ways guided`` asks in that way only, ``--limit 10`` asks the first ten of each file and set, ``-v`` shows all
failures.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fsm_agent.call import Request
from fsm_agent.clients import HttpClient
from fsm_agent.clients.local.functions.question import Question
from fsm_agent.errors import FsmAgentError
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, FunctionResult, Message, Settings
from fsm_agent.providers.catalog import provider

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.own_functions import ANOTHER_SUBJECT, NEAR_MISSES, OWN, Asked, is_right
from support.paths import SHARED

Case: TypeAlias = Mapping[str, Any]
SETTINGS = Settings(temperature=0, seed=1, max_tokens=160)
WAYS = ("bare", "worked", "guided")
EXAMPLES: dict[str, Any] = {"integer": 3, "number": 2.5, "boolean": True, "array": [], "object": {}, "string": "Oslo"}


def clients() -> dict[str, HttpClient]:
    """Return a client for each way; the profile switches the guidance off."""
    bare = provider("local").changed(models=())
    return {"bare": HttpClient(bare, ""), "worked": HttpClient(bare, ""), "guided": HttpClient("local", "")}


def functions_of(case: Case) -> tuple[Function, ...]:
    """Return the functions that a case offers."""
    return tuple(
        [Function(**{name: f[name] for name in ("name", "description", "parameters")}) for f in case["functions"]]
    )


def worked_turns(functions: Sequence[Function]) -> list[Message]:
    """Return two turns as they should go, with values made from the schemas."""
    turns = list[Message]()
    for index, function in enumerate((functions * 2)[:2]):
        fields = function.parameters.get("properties", {})
        required = function.parameters.get("required", ())
        arguments = {name: example(fields[name]) for name in fields if name in required}
        said = ", ".join([f"{name} {value}" for name, value in arguments.items()])
        asked = FunctionCall(name=function.name, arguments_json=json.dumps(arguments), id=f"{index}.0")
        turns += [
            Message.of("user", f"{function.description.split('.')[0]}: {said}."),
            Message.of("assistant", asked),
            Message.of("tool", FunctionResult(id=asked.id, name=function.name, text="done")),
            Message.of("assistant", "It is done."),
        ]
    return turns


def example(schema: Mapping[str, Any]) -> Any:
    """Return some value of a schema."""
    return schema["enum"][0] if schema.get("enum") else EXAMPLES.get(str(schema.get("type")), "Oslo")


def text_of(case: Case) -> str:
    """Return the question of a case."""
    return "\n".join([message["content"] for message in case["question"] if message["role"] == "user"])


def calls_of(
    client: HttpClient,
    question: str,
    functions: Sequence[Function],
    before: Sequence[Message] = (),
    choice: str = "auto",
) -> Any:
    """Return the calls that are asked for, as names and arguments; an error as a text."""
    messages = [*before, Message.of("user", question)]
    request = Request(messages=messages, functions=tuple(functions), tool_choice=choice, settings=SETTINGS)
    try:
        reply = client.complete(request)
    except FsmAgentError as error:
        return f"{type(error).__name__}: {error}"
    return [(call.name, call.arguments) for call in reply.message.function_calls]


def problem(calls: Any, expected: Mapping[str, Any]) -> str:
    """Return what is wrong with the calls; '' if nothing is."""
    if isinstance(calls, str):
        return f"error: {calls}"
    if len(calls) != 1:
        return f"{len(calls)} calls"
    name, arguments = calls[0]
    if name != expected["name"]:
        return f"called {name}"
    wanted = expected["arguments"]
    for argument, value in arguments.items():
        if argument not in wanted:
            return f"gave {argument}={value!r}"
        if not any(same(value, accepted) for accepted in wanted[argument]["accept"]):
            return f"gave {argument}={value!r}, not one of {wanted[argument]['accept']}"
    missing = [argument for argument in wanted if argument not in arguments and not wanted[argument]["optional"]]
    return f"left out {missing[0]}" if missing else ""


def same(value: Any, accepted: Any) -> bool:
    """Compare as the leaderboard does: texts without case, blanks and punctuation."""
    match value, accepted:
        case (bool(), _) | (_, bool()):
            return value is accepted
        case (int() | float(), int() | float()):
            return abs(value - accepted) <= 1e-9 * max(1, abs(accepted))
        case (str(), str()):
            return plain(value) == plain(accepted)
        case (list(), list()):
            return len(value) == len(accepted) and all(map(same, value, accepted))
        case (dict(), dict()):
            return value.keys() <= accepted.keys() and all(
                any(same(value.get(key), one) for one in (options if isinstance(options, list) else [options]))
                or (key not in value and "" in options)
                for key, options in accepted.items()
            )
    return bool(value == accepted)


def plain(text: str) -> str:
    """Return a text without case, blanks and punctuation."""
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


def stated(case: Case) -> list[str]:
    """Return the optional arguments whose accepted value, other than the default, is in the question."""
    question, expected = Question(text_of(case)), case["expected_calls"][0]
    offered = next(f for f in case["functions"] if f["name"] == expected["name"])["parameters"]["properties"]
    return [
        name
        for name, argument in expected["arguments"].items()
        if argument["optional"]
        and any(
            value not in ("", [], offered[name].get("default"))
            and question.position_of(" ".join(map(str, value)) if isinstance(value, list) else value) is not None
            for value in argument["accept"]
        )
    ]


def kind_of(case: Case) -> str:
    """Return the category of a case, without the language of its functions."""
    return str(case.get("category", "")).removesuffix("_python")


def asked_cases(cases: Sequence[Case], way: str, client: HttpClient, *, verbose: bool) -> list[Case]:
    """Ask all cases in one way, and print the counts; return those without a call."""
    uncalled = list[Case]()
    right, whole, errors = Counter[str](), Counter[str](), 0
    given = possible = 0
    for case in cases:
        functions, expected = functions_of(case), case["expected_calls"][0]
        before = worked_turns(functions) if way == "worked" else ()
        calls = calls_of(client, text_of(case), functions, before)
        wrong = problem(calls, expected)
        uncalled += [case] if calls == [] else []
        whole[kind_of(case)] += 1
        right[kind_of(case)] += not wrong
        errors += wrong.startswith("error")
        names = stated(case)
        arguments = calls[0][1] if not isinstance(calls, str) and calls else {}
        possible += len(names)
        given += sum(
            any(same(arguments.get(name), value) for value in expected["arguments"][name]["accept"]) for name in names
        )
        if wrong and verbose:
            print(f"    {case['id']}: {wrong}")
    kinds = ", ".join([f"{kind} {right[kind]} of {count}" for kind, count in whole.items()])
    print(f"{way:8} {right.total()} of {whole.total()} right ({kinds}); {errors} errors", flush=True)
    print(f"{'':8} {given} of {possible} stated optional arguments", flush=True)
    return uncalled


def asked_in_vain(title: str, questions: Iterable[Asked], client: HttpClient, *, verbose: bool) -> None:
    """Ask questions that no function answers, and print how many end without a call."""
    outcomes = Counter[str]()
    for asked in questions:
        calls = calls_of(client, asked.question, [Function.of(f) for f in asked.functions])
        outcome = "error" if isinstance(calls, str) else "call" if calls else "none"
        outcomes[outcome] += 1
        if verbose and outcome != "none":
            print(f"    {asked.question} {calls}")
    count = outcomes.total()
    print(f"{title}: {outcomes['none']} of {count} without a call; {outcomes['error']} errors", flush=True)


def asked_own(questions: Sequence[Asked], client: HttpClient, *, verbose: bool) -> None:
    """Ask the own functions, and print how many calls are right."""
    right = 0
    for asked in questions:
        calls = calls_of(client, asked.question, [Function.of(f) for f in asked.functions])
        is_done = calls == [] if not asked.name else len(calls) == 1 and is_right(asked, *calls[0])
        right += is_done
        if verbose and not is_done:
            print(f"    {asked.question} {calls}")
    print(f"own functions: {right} of {len(questions)} right", flush=True)


def cost_of_the_threshold(uncalled: Sequence[Case], client: HttpClient) -> None:
    """Print how many cases without a call would have been right with one."""
    right = 0
    for case in uncalled:
        calls = calls_of(client, text_of(case), functions_of(case), choice="required")
        right += not problem(calls, case["expected_calls"][0])
    print(f"the threshold costs {right} right calls: {len(uncalled)} cases ended without a call", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", type=Path, default=[SHARED / "cases" / "bfcl.jsonl"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--limit", type=int)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    by_way = clients()
    for path in options.cases:
        cases = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        cases = [case for case in cases if len(case["expected_calls"]) == 1][: options.limit]
        print(f"{path.name}: {len(cases)} cases of one call")
        for way in options.ways:
            uncalled = asked_cases(cases, way, by_way[way], verbose=options.verbose)
            if way == "guided":
                cost_of_the_threshold(uncalled, by_way[way])
    if "guided" in options.ways:
        guided, verbose = by_way["guided"], options.verbose
        asked_in_vain("another subject", ANOTHER_SUBJECT[: options.limit], guided, verbose=verbose)
        asked_in_vain("near misses", NEAR_MISSES[: options.limit], guided, verbose=verbose)
        asked_own(OWN[: options.limit], guided, verbose=verbose)


if __name__ == "__main__":
    main()
