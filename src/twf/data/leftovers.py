"""What systems and tools leave among a user's files: no reader takes it for data."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

from twf.errors import few, note

# All that is hidden as well: .DS_Store, AppleDouble's ._NAME, .git, .ipynb_checkpoints, .NAME.swp,
# what rsync has begun as .NAME.XXXXXX. Case does not matter to the systems that write the others.
LEFTOVER = re.compile(
    r"""\..+ | __macosx | icon\r | temporary\ items | network\ trash\ folder  # macOS
    | (eh)?thumbs(_vista)?\.db(:.*)? | desktop\.ini | .*:zone\.identifier  # Windows
    | \$recycle\.bin | system\ volume\ information
    | @eadir | [\#@]recycle | @__thumb | @recently-snapshot  # network drives
    | thevolumesettingsfolder | lost\+found | picasa\.ini  # also Linux, viewers
    | .+~ | \#.+\# | ~\$.+ | __pycache__  # editors, office programs, Python""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


def is_leftover(path: PurePath) -> bool:
    """Whether the file or folder at a path within data, or a folder that it is in, is none."""
    return any(LEFTOVER.fullmatch(part) for part in path.parts)


@contextlib.contextmanager
def passed_over(source: Path) -> Iterator[Callable[[Path], bool]]:
    """Yield a function: whether to pass over a path below `source`. In the end, say which were."""
    passed: dict[str, None] = {}

    def passes(path: Path) -> bool:
        inner = path.relative_to(source)
        if leftover := is_leftover(inner):
            passed[str(inner)] = None
        return leftover

    yield passes
    if passed:
        note(
            f"{source}: passed over what systems and tools leave behind, {len(passed)} in all: "
            f"{few(passed)}"
        )
