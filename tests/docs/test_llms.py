from tests.docs.samples import ROOT, script


def test_llms_is_current() -> None:
    """The summary for language models is what its script makes of the pages: run `python docs/llms.py`."""
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    assert script("llms").generated(text) == text
