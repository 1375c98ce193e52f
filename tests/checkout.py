"""The checkout: its root, a copy of it, and the mark of tests that a source distribution cannot run."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent


def needs(name: str) -> pytest.MarkDecorator:
    """Return the mark of tests that skip where a file or folder of the checkout is not there."""
    return pytest.mark.skipif(not (ROOT / name).exists(), reason=f"needs {name}, which only a checkout has")


@contextmanager
def copied() -> Iterator[Path]:
    """Make a copy of the checkout for the block, without hidden files, builds and bytecode; give its path."""
    with TemporaryDirectory(prefix="agentjobs-copy-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "dist", "__pycache__"))
        yield copy
