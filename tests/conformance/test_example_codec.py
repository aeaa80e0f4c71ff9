"""A codec for a wire of one's own, to copy from: does it pass the suite of codecs?"""

import json

from conformance.codec_conformance import CodecConformance
from conformance.streams import ServerEvent
from fsm_agent import FunctionCall, Usage, UsageError
from fsm_agent.messages import (
    Document,
    FunctionResult,
    Image,
    Text,
)
from fsm_agent.providers import Codec, Decoder, Profile, check_settings, merged_body, offered_functions, taken_settings


class AcmeDecoder(Decoder):
    """Reads {"text"}, {"call"} and {"arguments"}, then {"end", "usage"}."""

    def __init__(self, headers):
        super().__init__(headers)
        self.text, self.calls = "", []

    def take(self, chunk):
        last = len(self.calls) - 1
        match chunk:
            case {"text": str(text)}:
                self.text += text
                self.deltas.say(Text, text)
            case {"call": {"id": str(id), "name": str(name)}}:
                self.complete(last)
                self.calls.append([id, name, ""])
                self.deltas.begin_call(name, id)
            case {"arguments": str(text)} if self.calls:
                self.calls[-1][2] += text
                self.deltas.add_arguments(last, text)
            case {"end": _, "usage": [int(taken), int(given)]}:
                self.is_ended = True
                self.usage = Usage(input_tokens=taken, output_tokens=given)
                self.complete(last)
            case {"error": _}:
                raise self.reported_error(chunk)
            case _:
                raise self.bad_reply(f"no chunk: {chunk!r:.100}")

    def complete(self, last):
        if last >= 0:
            self.deltas.complete_call(last)

    def take_whole(self, document):
        chunks = document.get("chunks")
        for chunk in chunks if isinstance(chunks, list) else [document]:
            self.take(chunk)

    def reply(self):
        if not self.is_ended:
            raise self.bad_reply("the reply has no end")
        calls = [FunctionCall(name=name, arguments_json=text, provider_id=id) for id, name, text in self.calls]
        return self.reply_of([Text(self.text), *calls], "tool_calls" if calls else "stop")


class Acme(Codec):
    name = "acme"

    def path(self, model, *, stream):
        return "/generate"

    def headers(self, api_key):
        return {"x-acme-key": api_key} if api_key else {}

    def encode(self, request, *, model, profile, stream, provider=""):
        request, _, words, _ = self.request_form(request, profile)
        settings = request.settings
        check_settings(settings, model, profile)
        if settings.hosted_tools:
            raise UsageError(f"the wire {self.name!r} has no hosted tools")
        turns = [t for m in request.messages for t in self.turns(m, model)]
        if words is not None:  # describe the output
            turns.insert(0, {"role": "system", "text": words})
        names = ["max_tokens", "stop", "reasoning_effort", "top_logprobs"]
        options = {
            name: value
            for name in [*names, *sorted(taken_settings(profile))]
            if (value := getattr(settings, name)) not in (None, ())
        }
        body = {"model": model, "stream": stream, "turns": turns}
        body["options"] = options
        if request.functions:
            offered, body["choice"] = offered_functions(request, profile)
            body["tools"] = [{"name": f.name, "about": f.description, "schema": dict(f.parameters)} for f in offered]
        if request.output.schema is not None:
            body["schema"] = dict(request.output.schema)
        body = merged_body(body, profile.extra_body, settings.extra_body)
        return json.dumps(body).encode()

    def turns(self, message, model):
        if any(isinstance(p, Image | Document) for p in message.parts):
            raise UsageError(f"the model {model!r} takes no images")
        for part in message.parts:
            if isinstance(part, FunctionResult):
                call = part.provider_id or part.id
                yield {"role": "tool", "call": call, "text": part.text}
        calls = [
            {"id": call.provider_id or call.id, "name": call.name, "arguments": call.arguments_json}
            for call in message.function_calls
        ]
        if message.role != "tool":
            turn = {"role": message.role, "text": message.text}
            yield turn | ({"calls": calls} if calls else {})

    def decoder(self, headers):
        return AcmeDecoder(headers)


class TestAcme(CodecConformance):
    codec, profile = Acme(), Profile()
    kinds = ("text", "call")  # and no reasoning

    def chunks(self, turn):
        for part in turn.parts:
            key = "text"
            if part.kind == "call":
                key = "arguments"
                yield {"call": {"id": part.id, "name": part.name}}
            yield from ({key: piece} for piece in part.pieces)
        usage = [turn.usage.input_tokens, turn.usage.output_tokens]
        yield {"end": "stop", "usage": usage}

    def events(self, turn, *, interleaved=False):
        return [ServerEvent("", json.dumps(chunk).encode()) for chunk in self.chunks(turn)]

    def response(self, turn):
        return json.dumps({"chunks": list(self.chunks(turn))}).encode()

    def error_event(self, message):
        error = {"error": {"message": message}}
        return ServerEvent("", json.dumps(error).encode())
