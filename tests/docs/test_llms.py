from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from tests.docs.samples import ROOT


def script() -> ModuleType:
    """Load the script, which is no part of a package."""
    spec = spec_from_file_location("llms", ROOT / "docs" / "llms.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_llms_is_current() -> None:
    """The summary for language models is what its script makes of the pages: run `python docs/llms.py`."""
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    assert script().generated(text) == text
