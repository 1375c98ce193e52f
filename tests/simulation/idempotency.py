"""What the service remembers of the keys under which creates were sent, and for how long."""

from attrs import define, field

from tests.simulation.agreement import Agreement
from tests.simulation.documents import Job
from tests.simulation.world import World


@define(eq=False)
class Remembered:
    """A create that the service knows by its key."""

    body: bytes
    left: float
    job: Job
    is_answered: bool = False


@define(eq=False)
class IdempotencyKeys:
    """The keys of creates that have started agents, each under the API key with which it was sent.

    Attributes:
        forgotten: How often a prompt's key was forgotten sooner than the service promises.
    """

    _world: World
    _agreement: Agreement
    forgotten: dict[str, int] = field(factory=dict, init=False)
    _creates: dict[tuple[str, str], Remembered] = field(factory=dict, init=False)
    _arrived: set[str] = field(factory=set, init=False)

    def arrived(self, key: str) -> bool:
        """Note that a key has arrived; return whether it has before."""
        is_repeated = key in self._arrived
        self._arrived.add(key)
        return is_repeated

    def found(self, api_key: str, key: str, body: bytes, left: float) -> Remembered | None:
        """Return the create that was sent under a key before, unless it is forgotten: a repetition left at `left`."""
        known = self._creates.get((api_key, key))
        if known is None:
            return None
        if known.body != body:
            self._world.violate(f"Repeats: {key} of {known.job.prompt} comes with another body")
        age = left - known.left
        if age > min(self._agreement.idempotency_seconds + 1.0, self._agreement.remembers_seconds):
            if age <= self._agreement.idempotency_seconds:
                self.forget(api_key, key)
            return None
        return known

    def forget(self, api_key: str, key: str) -> None:
        """Forget a key sooner than promised: a repetition starts another agent."""
        if (known := self._creates.pop((api_key, key), None)) is not None:
            prompt = known.job.prompt
            self.forgotten[prompt] = self.forgotten.get(prompt, 0) + 1

    def answered(self, api_key: str, key: str | None) -> None:
        """Note that the first create under a key was answered, or will not be."""
        if key is not None and (known := self._creates.get((api_key, key))) is not None:
            known.is_answered = True

    def remember(self, api_key: str, key: str, body: bytes, left: float, job: Job) -> None:
        """Remember a create that has started an agent, from when its first byte left."""
        self._creates[api_key, key] = Remembered(body, left, job)
