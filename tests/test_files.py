"""A save that is stopped at any byte: load gives the state of before, or that of after, and never another one."""

import multiprocessing
import os
import random
import signal
from functools import partial

import pytest
import torch

from labkit import Cache, HybridLM, files
from labkit.errors import CacheFileError

TEXT = torch.arange(12)[None]


class Stopped(BaseException):
    """What nobody catches."""


class Part:
    """A file that takes `room` bytes and then calls `stop`; everything else is the real file."""

    def __init__(self, file, room, stop):
        self.file, self.room, self.stop = file, room, stop

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        self.file.write(data[:self.room])
        self.room -= len(data)
        if self.room < 0:
            self.file.flush()
            self.stop()


def stop_at(patch, place, stop):
    """Let the next save call `stop` behind `place` bytes, or in the system call of that name, or behind it."""
    if isinstance(place, int):
        patch(files, "open", lambda *args: Part(open(*args), place, stop))
    else:
        call, _, behind = place.partition(", ")
        real = getattr(os, call)
        patch(os, call, lambda *args: (real(*args) if behind else None, stop()))


def fill(length):
    """A model, and a cache that holds so many tokens; the same at every call."""
    model, cache = HybridLM.preset("hybrid", vocab_size=12), Cache()
    with torch.no_grad():
        model(TEXT[:, :length], cache)
    return model, cache


def content(cache):
    return cache.tokens.tolist(), [{n: t.tolist() for n, t in s.tensors().items()} for s in cache.states]


@pytest.fixture
def path(tmp_path):
    """A file that holds the state of before, in a folder of its own."""
    fill(4)[1].save(tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def size(tmp_path_factory):
    """How many bytes the state of after takes."""
    place = tmp_path_factory.mktemp("size") / "cache"
    fill(9)[1].save(place)
    return place.stat().st_size


def test_an_exception_at_any_byte_keeps_the_file_of_before(path, size, monkeypatch):
    def stop():
        raise Stopped
    before, after, rng = content(fill(4)[1]), fill(9)[1], random.Random(0)
    for place in (0, 1, 8, size - 1, *(rng.randrange(size) for _ in range(100)), "fsync", "replace"):
        with monkeypatch.context() as patch:
            stop_at(partial(patch.setattr, raising=False), place, stop)
            with pytest.raises(Stopped):
                after.save(path)
        assert content(Cache.load(path)) == before, place
        assert [file.name for file in path.parent.iterdir()] == ["cache"], "a part was left behind"
    new = path.with_name("new")
    with monkeypatch.context() as patch:
        stop_at(partial(patch.setattr, raising=False), size // 2, stop)
        with pytest.raises(Stopped):
            after.save(new)
    with pytest.raises(CacheFileError, match="cannot read"):
        Cache.load(new)


def test_a_model_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    def stop():
        raise Stopped
    old, new = (HybridLM.preset("mamba2", vocab_size=12, seed=seed) for seed in (0, 1))
    path = tmp_path / "model.safetensors"
    old.save(path)
    size = path.stat().st_size
    for place in (0, size // 2, size - 1, "fsync", "replace"):
        with monkeypatch.context() as patch:
            stop_at(partial(patch.setattr, raising=False), place, stop)
            with pytest.raises(Stopped):
                new.save(path)
        assert HybridLM.load(path).fingerprint() == old.fingerprint() != new.fingerprint()
        assert [file.name for file in tmp_path.iterdir()] == [path.name], "a part was left behind"
    new.save(path)
    assert HybridLM.load(path).fingerprint() == new.fingerprint()


def save_and_die(path, place):
    """Runs in a process of its own, which the kernel kills in the middle of a save."""
    stop_at(setattr, place, lambda: os.kill(os.getpid(), signal.SIGKILL))
    fill(9)[1].save(path)


def test_a_killed_process_leaves_the_state_of_before_or_after(path, size):
    before, (model, after) = content(fill(4)[1]), fill(9)
    context = multiprocessing.get_context("forkserver")     # starts torch once, then forks
    context.set_forkserver_preload(["torch", "labkit"])
    rng = random.Random(1)
    places = [0, size - 1, *(rng.randrange(size) for _ in range(6)), "fsync", "replace", "replace, behind"]
    for killed, place in enumerate(places, 1):
        child = context.Process(target=save_and_die, args=(path, place))
        child.start()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL, place
        loaded = Cache.load(path)
        if place == "replace, behind":
            assert content(loaded) == content(after)
        else:
            assert content(loaded) == before
            parts = [file for file in path.parent.iterdir() if file.suffix == ".part"]
            assert len(parts) == killed, "the kill did not come in the middle of a save"
            assert max(part.stat().st_size for part in parts) <= size
    for part in path.parent.glob("*.part"):                 # what a kill leaves is whole, or is refused
        try:
            assert content(Cache.load(part)) == content(after) and part.stat().st_size == size
        except CacheFileError:
            assert part.stat().st_size < size
    after.save(path)
    loaded = Cache.load(path)
    with torch.no_grad():
        assert torch.equal(model(TEXT[:, 9:], loaded), model(TEXT[:, 9:], after))
