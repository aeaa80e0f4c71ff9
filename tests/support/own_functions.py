"""Ten plain questions to functions of one's own, and sixty questions that no function answers.

They were written before anything was tuned, and are not changed: what they measure would be nothing otherwise.  A
question names its functions, what should be called, and a text that the answer has to contain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fetch_weather(city: str) -> str:
    """Return the weather in a city now."""
    return f"sunny, 23 degrees in {city}"


def average(numbers: list[float]) -> float:
    """Return the mean of a list of numbers."""
    return sum(numbers) / len(numbers)


def set_light(room: str, state: Literal["on", "off"]) -> str:
    """Switch the light in a room on or off."""
    return f"the light in the {room} is {state}"


def roll_dice(sides: int, count: int = 1) -> str:
    """Roll dice with so many sides."""
    return f"rolled {count} times, {sides // 2} each"


def population(city: str) -> int:
    """Return the number of people who live in a city."""
    return 709_037 if "oslo" in city.lower() else 0


def sunrise(city: str) -> str:
    """Return the time at which the sun rises in a city."""
    return "06:12"


def erase_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


def square_root(number: float) -> float:
    """Return the square root of a number."""
    return float(number) ** 0.5


def power(base: int, exponent: int) -> int:
    """Raise a number to a power."""
    return int(base**exponent)


def translate(text: str, language: str) -> str:
    """Translate a text into another language."""
    return "bonjour" if (text.lower(), language.lower()) == ("good morning", "french") else "?"


def order_status(order_id: str) -> str:
    """Look up where an order is."""
    return "shipped yesterday" if order_id == "A-1043" else "unknown"


@dataclass(frozen=True)
class Asked:
    """A question, the offered functions, and the right call, or None if no function answers it."""

    question: str
    functions: tuple[Callable[..., Any], ...]
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)  # a tuple: any of its values is right
    answer: str = ""  # a part of any right answer


OWN = (
    Asked("What is 17 + 25?", (add,), "add", {"a": 17, "b": 25}, "42"),
    Asked("What is the weather like in Lisbon?", (fetch_weather,), "fetch_weather", {"city": "Lisbon"}, "sunny"),
    Asked("What is the average of 4, 8, 15 and 16?", (average,), "average", {"numbers": [4, 8, 15, 16]}, "10.75"),
    Asked(
        "Turn off the light in the kitchen.",
        (set_light,),
        "set_light",
        {"room": ("kitchen", "the kitchen"), "state": "off"},
        "off",
    ),
    Asked("Roll 3 dice with 20 sides.", (roll_dice,), "roll_dice", {"sides": 20, "count": 3}, "10 each"),
    Asked("How many people live in Oslo?", (sunrise, population), "population", {"city": "Oslo"}, "709037"),
    Asked("What is 2 to the power of 10?", (square_root, power), "power", {"base": 2, "exponent": 10}, "1024"),
    Asked(
        "Translate 'good morning' into French.",
        (translate,),
        "translate",
        {"text": "good morning", "language": "French"},
        "bonjour",
    ),
    Asked("Where is my order A-1043?", (order_status,), "order_status", {"order_id": "A-1043"}, "shipped yesterday"),
    Asked("Who wrote Romeo and Juliet?", (erase_file,), answer="Shakespeare"),
)


def stock_price(ticker: str) -> float:
    """Return the price of a company's share."""
    return 0.0


def send_email(address: str, subject: str, body: str) -> str:
    """Send an e-mail."""
    return ""


def book_flight(origin: str, destination: str, date: str) -> str:
    """Book a flight from one city to another."""
    return ""


def find_recipe(dish: str) -> str:
    """Find a recipe for a dish."""
    return ""


def currency_rate(source: str, target: str) -> float:
    """Return the exchange rate between two currencies."""
    return 0.0


def set_alarm(hour: int, minute: int) -> str:
    """Set an alarm for a time of day."""
    return ""


def play_song(title: str, artist: str = "") -> str:
    """Play a song."""
    return ""


def bmi(weight_kg: float, height_m: float) -> float:
    """Calculate a person's body mass index."""
    return 0.0


def find_hotel(city: str, stars: int = 3) -> str:
    """Find a hotel in a city."""
    return ""


def define_word(word: str) -> str:
    """Look up the meaning of a word in the dictionary."""
    return ""


def triangle_area(base: float, height: float) -> float:
    """Calculate the area of a triangle."""
    return 0.0


def movie_rating(title: str) -> float:
    """Return the rating of a film."""
    return 0.0


ANOTHER_SUBJECT = (
    Asked("Tell me a joke.", (fetch_weather,)),
    Asked("Who painted the Mona Lisa?", (add,)),
    Asked("What is the capital of Australia?", (erase_file,)),
    Asked("Write a short poem about autumn.", (stock_price,)),
    Asked("How do plants make oxygen?", (send_email,)),
    Asked("Why is the sky blue?", (book_flight,)),
    Asked("Hello, how are you today?", (set_light,)),
    Asked("What is the weather in Madrid?", (average,)),
    Asked("Translate 'thank you' into German.", (roll_dice,)),
    Asked("When did the Second World War end?", (find_recipe,)),
    Asked("What is 12 times 12?", (order_status,)),
    Asked("Can you explain what a black hole is?", (set_alarm,)),
    Asked("Which planet is the largest?", (translate,)),
    Asked("Give me three names for a cat.", (currency_rate,)),
    Asked("How tall is the Eiffel Tower?", (play_song,)),
    Asked("What do pandas eat?", (bmi,)),
    Asked("Who was the first person on the moon?", (find_hotel, book_flight)),
    Asked("How do I sort a list in Python?", (fetch_weather, stock_price)),
    Asked("Recommend a book about ancient Rome.", (add, average)),
    Asked("What is the plural of mouse?", (set_light, set_alarm)),
    Asked("Summarise the plot of Hamlet in one sentence.", (erase_file, send_email)),
    Asked("How many legs does a spider have?", (find_recipe, find_hotel)),
    Asked("What is photosynthesis?", (triangle_area, movie_rating)),
    Asked("Who invented the telephone?", (sunrise, population)),
    Asked("Thank you, that was very helpful!", (order_status, translate)),
    Asked("Is a tomato a fruit or a vegetable?", (square_root, power)),
    Asked("What does the heart do?", (roll_dice, currency_rate)),
    Asked("How long does it take to boil an egg?", (stock_price, define_word, fetch_weather)),
    Asked("Name a famous composer from Austria.", (bmi, triangle_area, set_alarm)),
    Asked("What is the boiling point of water?", (book_flight, play_song, send_email)),
)

NEAR_MISSES = (
    Asked("Who invented the thermometer?", (fetch_weather,)),
    Asked("Why does it rain?", (fetch_weather,)),
    Asked("Who invented the plus sign?", (add,)),
    Asked("What is 17 divided by 4?", (add,)),
    Asked("What is the median of 3, 9 and 11?", (average,)),
    Asked("Why do companies issue shares?", (stock_price,)),
    Asked("Who founded Apple?", (stock_price,)),
    Asked("How does e-mail work?", (send_email,)),
    Asked("How long is the flight from Paris to Rome?", (book_flight,)),
    Asked("Why do aeroplanes fly?", (book_flight,)),
    Asked("How many calories are in a pizza?", (find_recipe,)),
    Asked("Which country uses the yen?", (currency_rate,)),
    Asked("How does an alarm clock work?", (set_alarm,)),
    Asked("Who sang Yesterday first?", (play_song,)),
    Asked("How much does an elephant weigh?", (bmi,)),
    Asked("Which city has the most hotels?", (find_hotel,)),
    Asked("How many words does English have?", (define_word,)),
    Asked("Who proved the theorem about right triangles?", (triangle_area,)),
    Asked("Who directed the film Jaws?", (movie_rating,)),
    Asked("How many people speak French?", (translate, define_word)),
    Asked("Who invented the light bulb?", (set_light,)),
    Asked("What is the oldest known dice game?", (roll_dice,)),
    Asked("Which is the largest city in the world?", (population, sunrise)),
    Asked("Why does the sun rise in the east?", (sunrise,)),
    Asked("How do I recover a deleted file?", (erase_file,)),
    Asked("Is the square root of 2 rational?", (power,)),
    Asked("What is the logarithm of 100?", (square_root, power)),
    Asked("How do I cancel my order A-1043?", (order_status,)),
    Asked("What is the area of a circle with radius 5?", (triangle_area,)),
    Asked("Which actor has won the most Oscars?", (movie_rating,)),
)
assert len(ANOTHER_SUBJECT) == len(NEAR_MISSES) == 30


def is_right(asked: Asked, name: str, arguments: Mapping[str, Any]) -> bool:
    """Return True if the call is the one that the question wants, argument by argument."""
    if name != asked.name or arguments.keys() != asked.arguments.keys():
        return False
    accepted = {key: value if isinstance(value, tuple) else (value,) for key, value in asked.arguments.items()}
    return all(arguments[key] in values for key, values in accepted.items())
