"""A model folder that did not change is read once; one that did is read again."""

from __future__ import annotations

from tasks.seen_files import FilesSeen, SeenFiles


class Counted:
    """Files that count how often they are asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, path: str) -> bytes:
        self.asked.append(path)
        if path.endswith("absent"):
            raise FileNotFoundError(path)
        return path.encode()

    def head(self, path: str, count: int, offset: int = 0) -> tuple[bytes, int] | None:
        self.asked.append(path)
        return path.encode()[offset : offset + count], len(path)

    def folder(self, path: str) -> tuple[dict[str, int], str | None] | None:
        self.asked.append(path)
        return {"config.json": 1}, "digest"


def read(files: SeenFiles) -> list[object]:
    return [
        files.folder("/d"),
        files.get("/d/config.json"),
        files.head("/d/w", 2),
        files.head("/d/w", 2, 1),
    ]


def test_the_same_content_is_read_once_and_says_the_same() -> None:
    files, seen = Counted(), FilesSeen()
    first = read(SeenFiles(files, {"/d": "one"}, seen))
    assert read(SeenFiles(files, {"/d": "one"}, seen)) == first
    assert len(files.asked) == 4


def test_other_content_is_read_again() -> None:
    files, seen = Counted(), FilesSeen()
    for content in ("one", "two"):
        read(SeenFiles(files, {"/d": content}, seen))
    assert len(files.asked) == 8


def test_what_has_no_identity_is_always_asked_for() -> None:
    files, seen = Counted(), FilesSeen()
    for _ in range(2):
        read(SeenFiles(files, {"/other": "one"}, seen))
    assert len(files.asked) == 8
