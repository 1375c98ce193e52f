"""Lines of a log that GitHub Actions would take for commands, such as `::add-mask::x` or `##[error]x`.

No key, prompt or error may be able to give one.
"""

import os
import re
from typing import Final

# The first kind begins a line, after any blanks; the second stands anywhere in it.
_COMMAND: Final = re.compile(r"^(?P<blanks>\s*):(?=:)|#(?=#\[)")


def is_on_github() -> bool:
    """Return whether the output is the log of a step of GitHub Actions."""
    return bool(os.environ.get("GITHUB_ACTIONS"))


def without_commands(line: str) -> str:
    """Return a line that is no command: on GitHub Actions the first sign of one is escaped, as `repr` would."""
    if ("::" not in line and "##[" not in line) or not is_on_github():  # nearly every line, and this is the quick way
        return line
    return _COMMAND.sub(lambda found: "\\x23" if found["blanks"] is None else f"{found['blanks']}\\x3a", line)


def without_commands_in_json(line: str) -> str:
    """Return a line of JSON objects, which read the same, without a command: JSON has `##` in strings only."""
    return line.replace("##[", "#\\u0023[") if is_on_github() else line
