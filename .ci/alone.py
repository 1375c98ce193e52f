"""Check an installation that has one extra, or none: `python -I .ci/alone.py EXTRA`.

All that the extra names is imported, and so is every public name of the package; `agentjobs --help` runs. Some of these
may need another extra, which is printed.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

PACKAGE: Final = "agentjobs_async"
NEEDED: Final = re.compile(r"(\S+) needs the extra (\w+)")


def plain(distribution: str) -> str:
    """Return a distribution's name in its one normal form."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def brought(extra: str) -> Iterator[str]:
    """Yield the packages of the distributions that an extra names, but stubs, which only type checkers import."""
    requirements = [line for line in requires(PACKAGE) or () if re.search(rf"extra == .{extra}\b", line)]
    if not requirements:
        raise SystemExit(f"there is no extra {extra}")
    distributions = {plain(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in requirements}
    for package, owners in packages_distributions().items():
        if package.isidentifier() and not distributions.isdisjoint(map(plain, owners)):
            yield package


def public_modules() -> Iterator[str]:
    """Yield the modules that a program imports: the package's, and the engines."""
    for package in (PACKAGE, f"{PACKAGE}.engines"):
        yield package
        for module in iter_modules(import_module(package).__path__):
            if not module.name.startswith("_"):
                yield f"{package}.{module.name}"


def needed_by(module: str) -> str:
    """Return the sentence of the extra that a module's names need, or nothing."""
    try:
        loaded = import_module(module)
        for name in getattr(loaded, "__all__", ()):
            getattr(loaded, name)
    except ImportError as error:
        if not NEEDED.search(str(error)):
            raise
        return str(error)
    return ""


def needed_by_command() -> str:
    """Return the sentence of the extra that the command line needs, or nothing."""
    command = [Path(sys.executable).with_name("agentjobs"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the package's own
    if done.returncode and not NEEDED.search(done.stderr):
        raise SystemExit(done.stderr)
    return done.stderr if done.returncode else ""


def main(extra: str) -> bool:
    """Return whether nothing needs the extra that is installed."""
    for package in brought(extra) if extra else ():
        import_module(package)
    sentences = [*map(needed_by, public_modules()), needed_by_command()]
    needs = [f"{who} needs {named}" for sentence in sentences for who, named in NEEDED.findall(sentence)]
    print("\n".join(needs))
    return not any(need.endswith(f" needs {extra}") for need in needs)


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1]))
