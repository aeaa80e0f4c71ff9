"""A quorum.

The flow asks three models at once, and two answers are enough: it then abandons the third request. One slow or failing
provider causes neither a delay nor an error, and no small model decides alone.

- `gather(…, enough=2)` returns the first two answers, in the order of its members, and abandons the rest.
- If the two answers differ, a larger model decides. It is asked only in this case.
- `within_s` limits the time of the whole state. Too few answers (`failed`) and a timeout (`elapsed`) lead to the same
  state.

```console
$ python examples/recipes/quorum.py
published: safe, unsafe
Seeded --begun--> voting
voting --done--> judging
judging --done SAFE--> published
```

**When not to use it.** If all opinions count, leave `enough` out. If the first answer is as good as any, use `race`. A
quorum protects against noise and outages, but it proves nothing: three small models can all give the same wrong answer.
"""

from dataclasses import dataclass
from enum import Enum

from fsm_agent import Agent, ProviderError
from fsm_agent.flows import Flow, ask, end, gather, into
from fsm_agent.testing import Script


class Verdict(Enum):
    SAFE = "safe"
    UNSAFE = "unsafe"


@dataclass(frozen=True)
class Post:
    text: str
    votes: tuple[Verdict, ...] = ()


@ask(Agent("openai:gpt-5-mini", name="first", output=Verdict))
def first(p: Post) -> str:
    return f"Is this safe to publish? {p.text}"


@ask(Agent("anthropic:claude-haiku-4-5", name="second", output=Verdict))
def second(p: Post) -> str:
    return f"Is this safe to publish? {p.text}"


@ask(Agent("gemini:gemini-2.5-flash", name="third", output=Verdict))
def third(p: Post) -> str:
    return f"Is this safe to publish? {p.text}"


voting = gather("voting", first, second, third, enough=2, within_s=30)


@ask(Agent("openai:gpt-5", name="judge", output=Verdict))
def judging(p: Post) -> str:
    return f"Is this safe to publish? {p.text} Two smaller models said: {p.votes or 'nothing'}"


def are_safe(p: Post, votes: tuple[Verdict, ...]) -> bool:
    return set(votes) == {Verdict.SAFE}


def are_unsafe(p: Post, votes: tuple[Verdict, ...]) -> bool:
    return set(votes) == {Verdict.UNSAFE}


published, withheld = end("published"), end("withheld")

quorum = Flow(
    "quorum",
    Post,
    start=voting,
    rows=[
        voting.done(published, when=are_safe, do=into("votes")),
        voting.done(withheld, when=are_unsafe, do=into("votes")),
        voting.done(judging, do=into("votes")),
        voting.failed(judging),
        voting.elapsed(judging),
        judging.done(published, of=Verdict.SAFE),
        judging.done(withheld, of=Verdict.UNSAFE),
        judging.failed(withheld),
    ],
)


def main() -> None:
    models = {
        first: Script('"safe"'),
        second: Script(ProviderError("it is down")),
        third: Script('"unsafe"'),
        judging: Script('"safe"'),
    }
    result = quorum.call(Post("Cats can fly."), clients=models)
    print(f"{result.state}: {', '.join(vote.value for vote in result.output.votes)}")
    for step in result.trace:
        print(f"{step.source} --{step.trigger}--> {step.to}")


if __name__ == "__main__":
    main()
