"""Advice about padding and continued calls, executed on ports of the mixers."""

from ..contract import check
from . import get as fault
from .advice import advise

SOURCE = "huggingface/transformers PR 47087"


def broken(name: str) -> list[str]:
    """The experiments of the padding law that fail with a fault of the catalogue."""
    return list(check(fault(name).subject(0), laws=["padding"])["padding"].failures)


@advise("padding-continued.fixed", "PR 47087 makes the mask count on continued calls, so padding is right now",
        "partly", "the path for one column still does not look at the mask, and a mask that is multiplied leaves "
        "the decay of the state", source=SOURCE)
def fixed():
    before, after = broken("padding-continued"), broken("padding-one-column")
    left = [words for words in after if "one column at a time" in words]
    verdict = "right" if not after else "partly" if len(after) < len(before) else "wrong"
    return verdict, (f"Experiments with padding that fail: {len(before)} before, {len(after)} after. Of those that are "
                     f"left, {len(left)} feed one column at a time.")


@advise("padding-continued.left", "Pad on the left, then a recurrent layer needs no mask on later calls", "partly",
        "left padding at the start of a text is behind the model; in a later call it meets a state", source=SOURCE)
def left():
    found = [words for words in broken("padding-continued") if words.startswith(("left", "much left"))]
    start = [words for words in found if words.endswith("first call")]
    verdict = "right" if not found else "partly" if not start else "wrong"
    return verdict, (f"Mask looked at on the first call only, left padding: {len(start)} experiments fail where all "
                     f"padding comes in the first call, {len(found) - len(start)} where some comes later.")


@advise("padding-continued.attention-only", "Only attention needs a mask; a recurrent layer reads from left to right",
        "wrong", "without a mask padding enters window and state", source="huggingface/transformers issue 31540")
def attention_only():
    subject = fault("padding-first-call").healthy(0)
    feed = subject.feed
    subject.feed = lambda x, state, mask=None: feed(x, state)           # the mask goes to nobody
    found = check(subject, laws=["padding"])["padding"]
    share = len(found.failures) / found.cases
    return ("right" if not share else "wrong" if share > 0.5 else "partly",
            f"Without a mask {len(found.failures)} of {found.cases} experiments with padding fail.")
