"""Small plots as SVG, drawn by hand: bars, and lines on logarithmic axes."""

from collections.abc import Mapping
from html import escape


def bars(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """placeholder"""
    return escape(title) + str(groups)
