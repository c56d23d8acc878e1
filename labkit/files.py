"""Where the lab's data lies: in the checkout, or beside the installed package."""

from pathlib import Path


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
