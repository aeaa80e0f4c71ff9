"""Short texts and the values that they hold: for typed answers of the embedded model.

They were written before anything was tuned, and are not changed: what they measure would be nothing otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field


class Booking(BaseModel):
    """A booking of a table in a restaurant."""

    guest: str
    guests: int = Field(description="How many people come")
    weekday: Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class Parcel(BaseModel):
    """A parcel that is on its way."""

    sender: str
    destination: str
    weight_kg: float
    fragile: bool = False


class Employee(BaseModel):
    """An employee and the department that he or she works in."""

    name: str
    department: str
    years: int = Field(description="How many years in the company")


class Server(BaseModel):
    """A server that is reported as down."""

    host: str
    port: int
    owner: str | None = None


@dataclass(frozen=True)
class Text:
    """A text in a task, and the right values, with None for a required value that is missing."""

    task: str
    output: type[BaseModel]
    values: dict[str, Any] | None


TEXTS = (
    Text(
        "Extract the booking.\nText: Mr. Okoye would like a table for five on Friday.",
        Booking,
        {"guest": "Mr. Okoye", "guests": 5, "weekday": "friday"},
    ),
    Text(
        "Extract the booking: Sunday, 8 people, name of Larsson.",
        Booking,
        {"guest": "Larsson", "guests": 8, "weekday": "sunday"},
    ),
    Text(
        "Table for two on Tuesday please, my name is Ana Reyes.",
        Booking,
        {"guest": "Ana Reyes", "guests": 2, "weekday": "tuesday"},
    ),
    Text(
        "What does the guest want?\n\nHello, this is Grace Kim. We are 12 and would come on Saturday.",
        Booking,
        {"guest": "Grace Kim", "guests": 12, "weekday": "saturday"},
    ),
    Text("Booking by Yusuf: Thursday, party of 3.", Booking, {"guest": "Yusuf", "guests": 3, "weekday": "thursday"}),
    Text(
        "Extract the parcel.\nText: Helvetia Books sends 4.5 kg to Antwerp.",
        Parcel,
        {"sender": "Helvetia Books", "destination": "Antwerp", "weight_kg": 4.5},
    ),
    Text(
        "Extract the parcel.\nText: 20 kg for Tromsø from Nordic Tools, fragile!",
        Parcel,
        {"sender": "Nordic Tools", "destination": "Tromsø", "weight_kg": 20, "fragile": True},
    ),
    Text(
        "The parcel of Maria weighs 2 kg and goes to Krakow.",
        Parcel,
        {"sender": "Maria", "destination": "Krakow", "weight_kg": 2},
    ),
    Text(
        "Read the label. From: Studio Vega. To: Palermo. Weight: 0.75 kg.",
        Parcel,
        {"sender": "Studio Vega", "destination": "Palermo", "weight_kg": 0.75},
    ),
    Text(
        "Our customer Dario ships a fragile parcel of 11 kg to Montreal.",
        Parcel,
        {"sender": "Dario", "destination": "Montreal", "weight_kg": 11, "fragile": True},
    ),
    Text(
        "Extract the employee.\nText: Fatima Zahra has worked in accounting for 9 years.",
        Employee,
        {"name": "Fatima Zahra", "department": "accounting", "years": 9},
    ),
    Text(
        "After 14 years in the sales department, Peter Holm is leaving.",
        Employee,
        {"name": "Peter Holm", "department": "sales", "years": 14},
    ),
    Text(
        "Extract the employee: Wei Chen, research, 3 years with us.",
        Employee,
        {"name": "Wei Chen", "department": "research", "years": 3},
    ),
    Text(
        "Who is it about? Twenty years ago Rosa Marin joined our legal team.",
        Employee,
        {"name": "Rosa Marin", "department": "legal", "years": 20},
    ),
    Text("Igor | logistics | 6 years", Employee, {"name": "Igor", "department": "logistics", "years": 6}),
    Text(
        "Extract the server.\nText: db-7.example.net is down on port 5432, owner is Lena.",
        Server,
        {"host": "db-7.example.net", "port": 5432, "owner": "Lena"},
    ),
    Text("Port 8080 of web3 does not answer.", Server, {"host": "web3", "port": 8080, "owner": None}),
    Text(
        "Extract the server: cache-eu-1 refuses connections at port 6379.",
        Server,
        {"host": "cache-eu-1", "port": 6379, "owner": None},
    ),
    Text(
        "Alert! mail.example.org:25 is unreachable (owner: Tomas).",
        Server,
        {"host": "mail.example.org", "port": 25, "owner": "Tomas"},
    ),
    Text(
        "Extract the server.\nText: Since noon nobody reaches 10.0.4.17 on port 443.",
        Server,
        {"host": "10.0.4.17", "port": 443, "owner": None},
    ),
    Text("Extract the booking.\nText: A table on Monday for the Ivanov family, please.", Booking, None),
    Text("Extract the parcel.\nText: Aunt Olga sends a parcel to Riga.", Parcel, None),
    Text("Extract the employee.\nText: Sven works in marketing.", Employee, None),
    Text("Extract the server.\nText: The printer is out of paper.", Server, None),
)
