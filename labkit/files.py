"""Where the lab's data lies, in the checkout or beside the installed package; and files that are written whole."""

import os
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex


def data_folder() -> Path:
    """The folder with the trained models and the tokenizer.

    Raises:
        FileNotFoundError: neither place has it.
    """
    here = Path(__file__).parent
    for folder in (here.parent / "data", here / "data"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError("the lab's data folder is missing; clone the repository, or install labkit from it")


@contextmanager
def replacing(path: str | Path):
    """A binary file to write, which takes the place of `path` at the end of the block.

    Whoever reads `path` finds the old content or the new one, also when the process is killed. When the block raises,
    the old content stays and nothing else is left.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
