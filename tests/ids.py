"""Ids as hypothesis makes them up."""

from typing import Final

from hypothesis import strategies as st

from agentjobs_async._validation import MAX_NAME_LENGTH

_AWKWARD: Final = "./\\?#%&=+:;@!$'()*,[]{}|^`\"<>~-_ aZ0é\u202e\u2028\U0001f680"
LEGAL_IDS: Final = (
    st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from(_AWKWARD), min_size=1, max_size=12)
    | st.text(st.sampled_from("./%2eEfF\\"), min_size=1, max_size=8)
    | st.just("\u20ac" * MAX_NAME_LENGTH)
).filter(lambda text: text not in {".", ".."})
"""Every id that the contract allows: no control characters (Cc), no surrogates (Cs), not . or .."""
