"""Many items, cut into pages."""

from itertools import count, islice

from agentjobs_async.batch._pages import pages_of


def test_pages() -> None:
    """The pages have all items in their order, and only the last one is shorter; of nothing there is none."""
    assert list(pages_of("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(pages_of("abcd", 2)) == [["a", "b"], ["c", "d"]]
    assert list(pages_of([], 2)) == []


def test_endless_items() -> None:
    """Items are read page by page, so that they may be endless."""
    assert list(islice(pages_of(count(), 2), 2)) == [[0, 1], [2, 3]]
