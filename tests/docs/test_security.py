import pytest

from agentjobs_async.testing import Emulator
from tests.docs.samples import run_page


async def test_mask(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample prints a text without the key that it contains."""
    async with emulator.session() as session:
        await run_page("security")["show"](session, f"key={emulator.api_key}")
    assert capsys.readouterr().out == "key=***\n"
