"""python -m labkit COMMAND: one entry for the commands of the lab."""
import sys
from importlib import import_module
from importlib.util import find_spec

# command: (module:function, called with the remaining arguments and returning an exit code or None; one line of help)
COMMANDS = {
    "doctor": ("labkit.doctor:main", "does this machine fit the lab?"),
    "check": ("labkit.contract.command:main", "check a mixer or a model against the contract"),
    "bench": ("labkit.bench:main", "speed and memory, beside transformers and the machine's own limits"),
    "train": ("labkit.train:main", "make the checkpoints in data/ again"),
    "price": ("labkit.price_page:main", "what silent faults cost on the trained models"),
    "versions": ("labkit.versions:main", "run the reported cases in named releases of transformers"),
    "report": ("labkit.lesson.report:main", "what a class got right and wrong, from its progress files"),
}


def _exists(target):
    try:
        return find_spec(target.partition(":")[0]) is not None
    except ModuleNotFoundError:      # its package does not exist
        return False


def available():
    """Return the commands whose module exists."""
    return {name: entry for name, entry in COMMANDS.items() if _exists(entry[0])}


def main(argv):
    """Run the command argv[0] with the rest of argv; without a command print the list. Returns the exit code."""
    commands = available()
    if argv and argv[0] in commands:
        module, _, function = commands[argv[0]][0].partition(":")
        return getattr(import_module(module), function)(argv[1:]) or 0
    listed = [f"  python -m labkit {name:9}{text}" for name, (_, text) in commands.items()]
    asked_for_help = not argv or argv[0] in ("-h", "--help")
    if not asked_for_help:
        print(f"There is no command {argv[0]!r}. These exist:", file=sys.stderr)
    print("\n".join(listed), file=sys.stdout if asked_for_help else sys.stderr)
    return 0 if asked_for_help else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
