"""What a checkout has, and a source distribution has not."""

from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent


def needs(name: str) -> pytest.MarkDecorator:
    """Return the mark of tests that skip where a file or folder of the checkout is not there."""
    return pytest.mark.skipif(not (ROOT / name).exists(), reason=f"needs {name}, which only a checkout has")
