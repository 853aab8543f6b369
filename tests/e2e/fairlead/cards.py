"""A folder of model cards, as `--discovery-backend file` watches it."""

import json
from pathlib import Path
from typing import Any


class CardFolder:
    """Writes and removes cards the way operators are told to: whole, by renaming."""

    def __init__(self, path: Path, create: bool = True):
        self.path = path
        if create:
            path.mkdir(parents=True)

    @property
    def flags(self) -> list[object]:
        """Flags of a frontend that watches it."""
        return ["--discovery-backend", "file", "--discovery-dir", self.path]

    def put(self, name: str, url: str | None = None, **members: Any) -> None:
        """Writes the card `name`; members as in the JSON, `namespace` among them."""
        self.put_text(name, json.dumps({**({"url": url} if url else {}), **members}))

    def put_text(self, name: str, text: str) -> None:
        """Writes any text as the card `name`."""
        temporary = self.path / f".tmp_{name}"
        temporary.write_text(text)
        temporary.rename(self.path / f"{name}.json")

    def remove(self, name: str) -> None:
        """Withdraws the card."""
        (self.path / f"{name}.json").unlink()

    def file(self, name: str) -> str:
        """Path of the card's file, as in the log."""
        return str(self.path / f"{name}.json")
