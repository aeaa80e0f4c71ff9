"""A client for a model in one's own process, to copy from: does it pass the suite of clients?"""

import asyncio
from contextlib import aclosing, contextmanager

from conformance.client_conformance import ClientConformance, Endless
from fsm_agent import ProviderError, Reply, UsageError
from fsm_agent.clients import SyncVerbs
from fsm_agent.errors import TimedOut
from fsm_agent.messages import TextDelta


class EngineClient(SyncVerbs):
    """Asks an engine: `generate(prompt)` yields pieces of text."""

    name = "engine:small"

    def __init__(self, engine):
        self._engine = engine

    async def astream(self, request, *, timeout_s=None):
        if self._engine is None:
            raise UsageError(f"the client of {self.name!r} is closed")
        if request.functions:
            raise UsageError(f"the model {self.name!r} has no functions")
        prompt = "\n".join(f"{m.role}: {m.text}" for m in request.messages)
        loop, text = asyncio.get_running_loop(), ""
        end = None if timeout_s is None else loop.time() + timeout_s
        async with aclosing(self._engine.generate(prompt)) as pieces:
            while True:
                try:
                    async with asyncio.timeout_at(end):
                        piece = await anext(pieces, None)
                except TimeoutError:
                    raise TimedOut(f"no reply in {timeout_s:g} s") from None
                if piece is None:
                    break
                text += piece
                yield TextDelta(piece)
        yield Reply.of(text)

    async def acomplete(self, request, *, timeout_s=None):
        stream = self.astream(request, timeout_s=timeout_s)
        async with aclosing(stream) as items:
            *_, reply = [item async for item in items]
        assert isinstance(reply, Reply)
        return reply

    def close(self):
        self._engine = None


class FakeEngine:
    """Gives one answer to each request, the last one again and again."""

    def __init__(self, *answers):
        self.answers, self.under_way = list(answers), 0

    async def generate(self, prompt):
        last = len(self.answers) == 1
        answer = self.answers[0] if last else self.answers.pop(0)
        if isinstance(answer, ProviderError):
            raise answer
        self.under_way += 1
        try:
            yield answer.text if isinstance(answer, Endless) else answer
            if isinstance(answer, Endless):
                await asyncio.Event().wait()
        finally:
            self.under_way -= 1


class TestEngineClient(ClientConformance):
    @contextmanager
    def serving(self, *answers):
        self.engine = FakeEngine(*answers)
        yield EngineClient(self.engine)

    def under_way(self, client):
        return self.engine.under_way
