"""A counterexample on a transformers model as a script that needs transformers alone."""

import inspect

import torch

from . import zoo
from .checker import run
from .laws import LAWS, Lab
from .lift import Float64
from .report import Finding
from .transformers import CausalLM

LIFT, REDRAW = inspect.getsource(Float64), inspect.getsource(zoo.redraw)

PLACES = '''    place = (real.cumsum(1) - 1).masked_fill(real == 0, 0)[:, -new:]
    given["position_ids"] = place if position is None else position + torch.arange(new).expand(len(text), -1)
'''

SCRIPT = '''"""{title}, transformers {version}. {law}: {words}."""
import copy

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import DynamicCache
from transformers.models.{name}.configuration_{name} import {config}
from transformers.models.{name}.modeling_{name} import {model}


{lift}

{redraw}

def feed(model, cache, text, new, mask=None, position=None):
    """Feed the last columns of a text; compare each row's real tokens with one call without a cache."""
    text = torch.tensor(text, dtype=torch.long)
    real = torch.ones_like(text) if mask is None else torch.tensor(mask)
    given = dict({argument}=cache, use_cache=True)
    if mask is not None:
        given["attention_mask"] = real
{places}    out = model(text[:, -new:], **given)
    for i in range(len(text)):
        if not real[i].any():
            continue
        now = out.logits[i] if out.logits.shape[1] != new else out.logits[i][real[i, -new:] == 1]
        want = clean(text[i:i + 1, real[i] == 1], use_cache=False).logits[0]
        want = want[len(want) - real[i, -new:].sum():]
        same = now.shape == want.shape
        errors.append((now - want).abs().max().item() if same and len(now) else 0.0 if same else float("inf"))
        scales.append(want.abs().max().item() if len(want) else 0.0)
    kept = getattr(out, "{argument}", None)
    return cache if kept is None else kept


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
errors, scales = [0.0], [0.0]
with torch.no_grad(), Float64():
    model = redraw({model}({config}(**{options})))
    clean = copy.deepcopy(model)
{steps}
print(f"largest error {{max(errors):.3e}} of {{max(scales):.3e}}")
'''


def script(asked: CausalLM, recipe: zoo.Recipe, finding: Finding) -> str:
    """A script that reproduces the counterexample with transformers alone; empty where the law holds."""
    import transformers
    if not finding.counterexample:
        return ""
    lab = Lab(asked, 0)
    case = next(case for case in LAWS[finding.law](lab) if case.words == finding.counterexample)
    asked.log = []
    asked.fresh()
    with torch.no_grad():
        run(case, asked.bound)
    log, asked.log = asked.log, None
    return SCRIPT.format(
        title=recipe.title, version=transformers.__version__, law=finding.law, words=finding.counterexample,
        name=recipe.name, config=recipe.config, model=recipe.model, options=recipe.options, argument=asked.argument,
        places=PLACES if asked.positions else "", lift=LIFT, redraw=REDRAW, steps=_steps(asked, log, case.must_refuse))


def _steps(asked: CausalLM, log: list, must_refuse: bool) -> str:
    """The operations of a log as lines of Python."""
    lines, names, used = [], {}, {session.name for kind, session, *_ in log if kind != "start"}
    log = [step for step in log if step[1].name in used]
    for i, (kind, session, *more) in enumerate(log):
        name = names.setdefault(session.name, "abcdefghijkl"[len(names) % 12])
        if kind == "start":
            lines.append(f"{name} = DynamicCache(config=model.config)" if asked.makes_cache else f"{name} = None")
            if asked.recording:
                lines.append(f"{name}.activate_past_recording()")
        elif kind == "fed" and len(log) > 30:               # a long text in equal pieces: one loop
            ends = [step[1].length for step in log[i:]]
            lines += [f"text = {log[-1][1].text.tolist()}", f"for start, end in zip([0] + {ends}, {ends}):",
                      f"    {name} = feed(model, {name}, [row[:end] for row in text], end - start)"]
            break
        elif kind in ("feed", "fed"):
            x, position, other = more                       # other: the name of the model in the script
            mask = "" if session.mask is None else f", mask={session.mask.long().tolist()}"
            place = "" if position is None else f", position={position}"
            line = f"{name} = feed({other}, {name}, {session.text.tolist()}, {x.shape[1]}{mask}{place})"
            if other == "other" and not any(old.startswith("other") for old in lines):
                lines += ["other = copy.deepcopy(model)", "[weight.mul_(1.25) for weight in other.parameters()]"]
            if kind == "feed" and i < len(log) - 1:         # it raised, and the case went on
                lines += ["try:", "    " + line, "except Exception as error:", "    print('raised:', error)"]
            else:
                lines.append(line)
        elif kind == "fork":
            lines.append(f"{name} = copy.deepcopy({names[more[0].name]})")
        elif kind == "do":
            lines.append(f"{name}.{more[0]}")
        elif kind == "try":
            lines += ["try:", f"    {name}.{more[0]}", "except RuntimeError as error:", "    print('refused:', error)"]
        elif kind == "generate":
            prompt, n = more
            lines += [f"prompt = torch.tensor({prompt.tolist()})", "model.generation_config.eos_token_id = None",
                      f"given = dict({asked.argument}={name}, attention_mask=torch.ones_like(prompt), pad_token_id=0)",
                      f"found = model.generate(prompt, max_new_tokens={n}, do_sample=False, **given)", "want = prompt",
                      f"for _ in range({n}):", "    next_one = clean(want, use_cache=False).logits[:, -1:].argmax(-1)",
                      "    want = torch.cat([want, next_one], 1)", "print('found ', found.tolist())",
                      "print('wanted', want.tolist())", "errors.append(float((found != want).sum()))"]
    if must_refuse:
        lines.append("print('accepted: nothing was raised')")
    return "\n".join("    " + line for line in lines)
