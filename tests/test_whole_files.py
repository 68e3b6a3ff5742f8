"""Files that appear whole: what a killed process leaves goes with the next file of another, and nothing else does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gfl_lightning.whole_files import try_writing, whole_file


def killed_while_writing(file: Path) -> int:
    """The number of a process that was killed with a file half-written."""
    child = os.fork()
    if child == 0:
        with whole_file(file) as scratch:
            scratch.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return child


def test_the_scratch_file_of_a_killed_process_goes_with_the_next_file(tmp_path: Path) -> None:
    child = killed_while_writing(tmp_path / "last.ckpt")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(f".{child}-")
    place = left.name.split("-")[1][:8]
    elsewhere = "0" * 8 if place != "0" * 8 else "1" * 8
    kept = [f".{os.getppid()}-{place}.a", f".{child}-{elsewhere}.a", f".{child}.a", ".hidden", f"{child}-{place}.a"]
    for name in kept:
        (tmp_path / name).touch()
    with whole_file(tmp_path / "other.json") as scratch:
        scratch.write_text("whole")
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([*kept, "other.json"])


def test_a_file_that_fails_leaves_nothing_and_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("before")
    with pytest.raises(UnicodeEncodeError), whole_file(file) as scratch:
        scratch.write_text("half \ud800", encoding="utf-8")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert file.read_text() == "before"


def test_trying_a_folder_leaves_no_trace(tmp_path: Path) -> None:
    try_writing(tmp_path / "new" / "er")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        try_writing(tmp_path / "file" / "folder")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
