"""Training: a function of the seed, goes on after an interruption, and starts from weights that say what they should."""

import pytest
import torch

from labkit import HybridLM
from labkit.corpus import NAMES
from labkit.model import PRESETS
from labkit.tokenizer import tokenizer
from labkit.train import RECIPES, Recipe, batch, kept_at, main, span, starting, train


def weights(model):
    return torch.cat([weight.flatten() for weight in model.parameters()])


def test_an_interrupted_run_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    whole = train("mamba2", steps=4, folder=tmp_path / "whole", every=2)
    measured = []

    def interrupted(model, n):
        measured.append(n)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return 0.0
    monkeypatch.setitem(train.__globals__, "accuracy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train("mamba2", steps=4, folder=tmp_path / "parts", every=2)
    again = train("mamba2", steps=4, folder=tmp_path / "parts", every=2)
    assert len(measured) == 3, "the second run starts at step 2"
    assert torch.equal(weights(whole), weights(again))
    assert not torch.equal(weights(whole), weights(train("mamba2", steps=4, seed=1)))
    assert (tmp_path / "parts" / "mamba2.png").stat().st_size > 5000


def test_what_was_kept_is_of_this_recipe_and_whole_or_refused(tmp_path, monkeypatch):
    train("mamba2", steps=2, folder=tmp_path, every=1)
    kept = kept_at(tmp_path, "mamba2", 0, 2)
    before = kept.read_bytes()
    with monkeypatch.context() as patch:
        patch.setitem(RECIPES, "mamba2", Recipe(5e-3, 3000, fewest=(2, 2), most=5, colours=2))
        with pytest.raises(ValueError, match="another recipe; remove it"):
            train("mamba2", steps=2, folder=tmp_path)
    assert kept.read_bytes() == before
    for damaged in (b"", before[:len(before) // 2], b"no pickle"):
        kept.write_bytes(damaged)
        with pytest.raises(ValueError, match="cannot be read .* remove it"):
            train("mamba2", steps=2, folder=tmp_path)
        assert kept.read_bytes() == damaged
    kept.unlink()
    assert torch.equal(weights(train("mamba2", steps=2, folder=tmp_path)), weights(train("mamba2", steps=2)))


def test_wrong_arguments_are_named(tmp_path, capsys):
    with pytest.raises(ValueError, match="'mambo'; there are mamba, "):
        train("mambo")
    with pytest.raises(ValueError, match="0 steps"):
        train("mamba2", steps=0)
    kept = kept_at(tmp_path, "mamba2", 0, 1)
    kept.write_bytes(b"")
    for arguments, said in ((["mambo"], "'mambo'; there are mamba, "), (["mamba2", "--steps", "0"], "--steps 0 was asked for"),
                            (["mamba2", "--steps", "1"], "remove it to train from the start")):
        with pytest.raises(SystemExit) as exit:
            main([*arguments, "--out", str(tmp_path / "new"), "--work", str(tmp_path)])
        assert exit.value.code == 2 and said in capsys.readouterr().err


def test_the_loss_looks_at_answers_alone():
    ids, weight = batch(0, 7)
    words = tokenizer()
    assert weight.any(1).all()
    for row, mask in zip(ids, weight):
        for t in mask.nonzero().flatten().tolist():
            before = words.decode(row[:t + 1].tolist())
            assert "?" in before[-30:], before


def test_few_people_first():
    for recipe, first, last in ((RECIPES["mamba"], (2, 2), (3, 6)), (RECIPES["mamba2"], (2, 2), (2, 5)),
                                (RECIPES["attention"], (1, 2), (3, 6))):
        spans = [span(recipe, step / 100) for step in range(100)]
        assert spans[0] == first and spans[-1] == last and spans == sorted(spans)
        assert len(batch(0, 0, recipe)[0]) == recipe.texts
        for step in (0, 99):
            names = {len({name for name in NAMES if name in tokenizer().decode(row.tolist())})
                     for row in batch(0, step, recipe, step / 100)[0]}
            assert min(names) >= spans[step][0] and max(names) <= spans[step][1]


def test_memories_start_with_many_lengths():
    for preset in ("mamba", "mamba2"):
        slow = starting(HybridLM.preset(preset, 32), 0).layers[0].mixer.A_log.detach().exp()
        assert torch.equal(slow, slow.sort(-1).values)
        assert slow.min() < 0.05 and slow.max() == 1, "the longest is more than twenty times as long as the shortest"


def test_first_heads_look_back():
    """Head i of the first attention layer gives its largest weight to the token i + 1 before."""
    model = starting(HybridLM.preset("attention", 32), 0)
    mixer = model.layers[0].mixer
    assert starting(HybridLM.preset("hybrid", 32), 0).layers[3].mixer.q_proj.bias.abs().max() == 0
    with torch.no_grad():
        mixer.q_proj.weight.zero_()
        mixer.k_proj.weight.zero_()
        mixer.v_proj.bias.zero_()
        mixer.o_proj.weight.copy_(torch.eye(64))
        mixer.o_proj.bias.zero_()
        x = torch.zeros(12, 12, 64)
        x[range(12), range(12)] = 1                                                 # row s: a mark at token s alone
        seen = mixer(x)[0][:, 11].unflatten(-1, (4, 16)).abs().sum(-1)              # (12, heads)
    assert seen.argmax(0).tolist() == [10, 9, 8, 7]


def test_every_trained_preset_has_a_recipe():
    assert set(RECIPES) <= set(PRESETS)


def test_the_command_makes_the_folder_that_it_writes_to_and_leaves_nothing_to_go_on_from(tmp_path, capsys):
    assert main(["mamba2", "--steps", "1", "--out", str(tmp_path / "new"), "--work", str(tmp_path / "work")]) == 0
    assert HybridLM.load(tmp_path / "new" / "mamba2.safetensors").config == HybridLM.preset(
        "mamba2", tokenizer().get_vocab_size()).config and "of 400 held-out questions" in capsys.readouterr().out
    assert [file.name for file in (tmp_path / "work").iterdir()] == ["mamba2.png"]
