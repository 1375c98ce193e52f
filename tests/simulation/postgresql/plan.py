"""What a seed decides: the programs, what befalls them, how the service misbehaves, and what a person does."""

import random
from typing import Any, Final, Literal

from attrs import frozen

from agentjobs_async.batch import Limits, Rate

KEY: Final = "emk_7c1e9a3f5d2b8046"
"""The API key, which comes out nowhere."""
WRONG: Final = "no-job-of-"
"""What the id begins with by which a person settles a row wrongly."""
PROJECTS: Final = ("docs", "blog")
"""The sessions' own projects."""

Kind = Literal["batch", "worker", "durable"]


@frozen
class Program:
    """A process, started again whenever it was ended.

    Attributes:
        project: Its session's own.
        keys: Of its items or jobs; programs may share them.
        max_active, max_sending: Of a batch, beside the limits of the journal.
        tells: Whether durable jobs have an `on_end`.
        raises: Whether the first call of `on_end` for every third key raises an error.
        unfollows: After how many seconds it unfollows which of its keys.
        drains: Whether SIGTERM drains its session; otherwise it leaves its blocks.
        grace: Seconds of that draining.
    """

    name: str
    kind: Kind
    project: str
    keys: tuple[str, ...]
    max_active: int
    max_sending: int
    tells: bool
    raises: bool
    unfollows: tuple[tuple[float, str], ...]
    drains: bool
    grace: float


@frozen
class Moment:
    """So many seconds after the programs have begun, or when so many requests have arrived, if that is earlier."""

    seconds: float
    requests: int | None = None


@frozen
class Trouble:
    """What befalls a program.

    Attributes:
        what: `kill`, `terminate`, `stop` (and continue), or `cut`: its connections to the database are broken.
        seconds: For which it is down or stopped.
    """

    moment: Moment
    program: str
    what: Literal["kill", "terminate", "stop", "cut"]
    seconds: float


@frozen
class Action:
    """What a person does to the row that is `choice` from 0 to 1 of the way through those that allow it."""

    moment: Moment
    what: Literal["abandon", "retry", "resolve", "resolve wrongly", "send again"]
    choice: float


@frozen
class Plan:
    """A world.

    Attributes:
        owner_timeout: Seconds without a heartbeat until an owner counts as dead.
        faults: Of the service: for the requests of one key, `None` for all.
        latency: Seconds until each answer.
        longest: Seconds that the longest job takes.
        lasts: Seconds until the troubles are over.
        settles: Whether a person settles at the end what is unknown, with the jobs that the service has.
    """

    seed: int
    owner_timeout: float
    limits: Limits
    programs: tuple[Program, ...]
    troubles: tuple[Trouble, ...]
    actions: tuple[Action, ...]
    faults: tuple[tuple[str | None, str], ...]
    latency: float
    longest: float
    lasts: float
    settles: bool

    @property
    def keys(self) -> set[str]:
        """The keys of all programs."""
        return {key for program in self.programs for key in program.keys}


def project_of(key: str) -> str | None:
    """Return the project that an item names: one of three has its own, the others have that of their session."""
    return "site" if int(key[1:]) % 3 == 0 else None


def extra_of(key: str) -> dict[str, Any] | None:
    """Return the extra of an item: every second one has one; `None` for none."""
    return {"of": key} if int(key[1:]) % 2 else None


def plan_of(seed: int) -> Plan:
    """Return what a seed decides."""
    draw = random.Random(f"{seed} postgresql")
    kinds = draw.choice(_KINDS)
    batch, durable = (_keys(draw, letter) for letter in "bd")
    own = draw.choice(((PROJECTS[0],), (PROJECTS[0],), PROJECTS))
    programs = tuple(
        _program(draw, f"p{number}", kind, draw.choice(own), durable if kind == "durable" else batch)
        for number, kind in enumerate(kinds)
    )
    lasts = draw.choice((3.0, 5.0, 7.0))
    owner_timeout = draw.choice((2.0, 3.0, 5.0))
    return Plan(
        seed,
        owner_timeout,
        _limits(draw),
        programs,
        tuple(_trouble(draw, programs, lasts, owner_timeout) for _ in range(draw.choice((0, 2, 4, 7)))),
        tuple(_action(draw, lasts) for _ in range(draw.choice((0, 2, 6, 15)))),
        tuple(_fault(draw, programs) for _ in range(draw.choice((0, 2, 5, 12)))),
        latency=draw.choice((0.0, 0.0, 0.05, 0.3)),
        longest=draw.choice((0.3, 1.0, 2.0)),
        lasts=lasts,
        settles=draw.random() < 0.5,
    )


_KINDS: Final[tuple[tuple[Kind, ...], ...]] = (
    ("durable", "durable"),
    ("durable", "durable", "durable"),
    ("batch", "batch"),
    ("worker", "worker", "worker"),
    ("batch", "worker"),
    ("batch", "batch", "worker"),
    ("batch", "batch", "durable"),
    ("batch", "durable", "durable"),
    ("worker", "worker", "durable", "durable"),
)
_RATES: Final = (None, None, Rate(4, per=1.0), Rate(3, per=0.7, scope="all"), Rate(10, per=3.0, scope="all"))


def _keys(draw: random.Random, letter: str) -> tuple[str, ...]:
    return tuple(f"{letter}{number}" for number in range(draw.choice((2, 6, 12, 20))))


def _program(draw: random.Random, name: str, kind: Kind, project: str, keys: tuple[str, ...]) -> Program:
    unfollowed = [key for key in keys if draw.random() < draw.choice((0.0, 0.0, 0.2))]
    return Program(
        name,
        kind,
        project,
        tuple(key for key in keys if draw.random() < 0.8),
        max_active=draw.choice((1, 3, 20)),
        max_sending=draw.choice((1, 3, 10)),
        tells=name == "p0" or kind != "durable" or draw.random() < 0.8,
        raises=draw.random() < 0.3,
        unfollows=tuple((draw.uniform(0.5, 4.0), key) for key in unfollowed),
        drains=draw.random() < 0.6,
        grace=draw.choice((0.0, 1.0)),
    )


def _limits(draw: random.Random) -> Limits:
    return Limits(
        max_active=draw.choice((None, 2, 5)),
        create_rate=draw.choice(_RATES),
        unknown_for=draw.choice((0.0, 1.0)),
        timeout=60.0,
        max_sending=draw.choice((1, 4, 10)),
        polls_per_second=draw.choice((None, 8.0, 30.0)),
    )


def _trouble(draw: random.Random, programs: tuple[Program, ...], lasts: float, owner_timeout: float) -> Trouble:
    what = draw.choice(("kill", "kill", "kill", "terminate", "stop", "stop", "cut"))
    seconds = draw.choice((0.2, 1.0)) if what != "stop" else owner_timeout * draw.choice((0.4, 0.8, 1.3, 1.3))
    return Trouble(_moment(draw, lasts), draw.choice(programs).name, what, seconds)  # type: ignore[arg-type] # one of four words


def _moment(draw: random.Random, lasts: float) -> Moment:
    requests = int(draw.expovariate(1 / 15)) + 1 if draw.random() < 0.5 else None
    return Moment(draw.uniform(0.1, lasts), requests)


def _action(draw: random.Random, lasts: float) -> Action:
    what = draw.choice(("abandon", "retry", "retry", "resolve", "resolve wrongly", "send again", "send again"))
    return Action(_moment(draw, lasts), what, draw.random())  # type: ignore[arg-type] # one of five words


_FAULTS: Final = (
    *("429 on=create retry-after=1", "429 on=create", "503 on=create agent=no", "503 on=create agent=yes"),
    *("500 on=create agent=yes", "reset on=create agent=yes", "reset on=create agent=no", "close:body on=create"),
    *('400 on=create error="no {key} here"', "409 on=create", "hang for=1.5 on=create", "close:headers on=create"),
    "body:html on=create",
    *("503 on=get", "429 retry-after=1 on=get", "reset on=get", "hang for=2 on=get", "404 on=get", "body:cut on=get"),
    "410 on=get forever",
)


def _fault(draw: random.Random, programs: tuple[Program, ...]) -> tuple[str | None, str]:
    text = draw.choice(_FAULTS)
    keys = draw.choice(programs).keys
    key = draw.choice(keys) if keys and (draw.random() < 0.7 or "forever" in text) else None
    if "forever" in text:
        return key or "nobody", text
    times = draw.choice((1, 1, 2, 4))
    return key, f"{text} x{times}"
