"""Shared by the unit tests and the notebooks: each notebook gets a progress file of its own, outside the repository."""
import os
import tempfile
from pathlib import Path

import nbval.plugin
import pytest

nbval.plugin.metadata_tags["library"] = ("check", False)    # what such a cell prints depends on the installed library


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if item.path.suffix == ".ipynb":      # set before the first cell starts the kernel, which inherits it
        folder = item.config.stash.setdefault(FOLDER, tempfile.TemporaryDirectory())
        os.environ["LABKIT_PROGRESS"] = str(Path(folder.name) / f"{item.path.stem}.json")
    return (yield)


FOLDER = pytest.StashKey[tempfile.TemporaryDirectory]()
