"""Pictures of a flow, of the path that a run took through it, and of one agent call, as files in Mermaid.

Run it with ``python examples/drawing.py [FOLDER]``.  A script stands in for the model.  Editors, GitHub and
mermaid.live can display these files.  If Graphviz is installed, file names may also end in ``.svg`` or ``.png``.
"""

import sys
from pathlib import Path

from fsm_agent import Agent
from fsm_agent.diagrams import trace_diagram, write
from fsm_agent.flows import Flow, ask, end, execute, flow_diagram, run_diagram
from fsm_agent.testing import Script

counter = Agent(Script("rather long", "8", "quite short", "3"), output=int, name="counter")  # it corrects itself


@ask(counter)
def counting(text: str) -> str:
    return f"How many words has this text? {text}"


@execute
def filing(text: str) -> str:
    return text


letters = Flow(
    "letters",
    str,
    start=counting,
    rows=[
        counting.done(filing),
        counting.failed(end("uncounted", failed=True)),
        filing.done(end("filed")),
    ],
)


def main(folder: str = ".") -> None:
    run = letters.prepare("Thank you for the lamps, they are lovely.")
    letters.run(run)
    asked = counter.call("How many words are there in: I like lamps?")
    pictures = {"flow": flow_diagram(letters), "run": run_diagram(run), "call": trace_diagram(asked.trace)}
    for name, picture in pictures.items():
        print(write(picture, Path(folder, f"{name}.mmd")))


if __name__ == "__main__":
    main(*sys.argv[1:])
