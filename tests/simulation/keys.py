"""The keys of all sessions: each is replaced by its next version at a fault `new key`."""

from attrs import define, field

from tests.simulation.world import World


@define(eq=False)
class Keys:
    """Which keys the service accepts.

    Attributes:
        first: The first version of the key of each sender.
    """

    _world: World
    first: dict[str, str] = field(factory=dict, init=False)

    @property
    def newest(self) -> int:
        """The number of the version that is the newest at present; that of the first one is 0."""
        return len(self._world.new_keys)

    def key(self, sender: str, version: int) -> str:
        """Return a version of the key of a sender."""
        return f"{self.first[sender]}-v{version}" if version else self.first[sender]

    def version(self, sender: str, key: str) -> int | None:
        """Return which version of its key a sender has sent; `None` for another text."""
        found = [version for version in range(self.newest + 1) if key == self.key(sender, version)]
        return found[0] if sender in self.first and found else None

    def is_refused(self, version: int) -> bool:
        """Return whether the service refuses a version of keys: it was replaced long enough ago."""
        return version < self.newest and self._world.now >= self._world.new_keys[version]
