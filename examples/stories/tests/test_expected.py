"""Each story, told in Python, says what is expected of it in every language."""

import subprocess
import sys
from pathlib import Path

import pytest

STORIES = sorted(path.parent for path in Path(__file__).parents[1].glob("*/expected.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_story(story: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-B", story / "main.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout == (story / "expected.txt").read_text()


def test_there_are_five() -> None:
    assert len(STORIES) == 5
