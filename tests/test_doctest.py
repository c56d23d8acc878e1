"""Examples in docstrings are run."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import labkit

MODULES = [found.name for found in pkgutil.walk_packages(labkit.__path__, "labkit.") if not found.name.endswith("__main__")]
WITH_EXAMPLES = [name for name in MODULES
                 if any(test.examples for test in doctest.DocTestFinder().find(import_module(name)))]


def test_there_are_examples():
    assert {"labkit.conv", "labkit.model", "labkit.generate"} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name):
    assert doctest.testmod(import_module(name)).failed == 0
