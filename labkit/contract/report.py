"""What a check found: as text, as HTML in a notebook, as JSON."""

import html
import json
from dataclasses import asdict, dataclass, field

VERDICTS = ("holds", "silently wrong", "raises", "not supported")
LOOKS = {"holds": ("ok", "#d5f0e3"), "silently wrong": ("X", "#f6c7b6"), "raises": ("!", "#f7e3a1"),
         "not supported": ("-", "#eeeeee")}


@dataclass(frozen=True)
class Finding:
    """What one law says of one subject.

    Attributes:
        law: its name; says: the law in a sentence.
        verdict: of VERDICTS.
        cases: how many experiments were run.
        error: largest difference; scale: largest wanted value.
        position, row: the first wrong position of the counterexample, and its row.
        counterexample: the smallest experiment that fails, in words.
        strip: one letter a position of it, `.` right, `X` wrong, for the worst row.
        failures: all experiments that failed, in words.
        message: the exception, where it raises; the reason, where it is not supported.
    """

    law: str
    says: str
    verdict: str
    cases: int = 0
    error: float = 0.0
    scale: float = 0.0
    position: int | None = None
    row: int | None = None
    counterexample: str = ""
    strip: str = ""
    failures: tuple[str, ...] = ()
    message: str = ""

    def __str__(self) -> str:
        line = f"{LOOKS[self.verdict][0]:>2}  {self.law:9} {self.verdict}"
        if self.verdict == "silently wrong":
            place = "" if self.position is None else f"; first wrong at position {self.position}, row {self.row}"
            size = f"; error {self.error:.1e} of {self.scale:.1e}" if self.scale else ""
            strip = f" [{self.strip[:40]}{'…' if len(self.strip) > 40 else ''}]" if self.strip else ""
            line += f": {self.counterexample}{place}{strip}{size}" + (f"; {self.message}" if self.message else "")
        elif self.verdict == "raises":
            line += f": {self.counterexample}: {self.message}"
        elif self.message:
            line += f": {self.message}"
        return line


@dataclass(frozen=True)
class Report:
    """All findings about one subject.

    Attributes:
        subject: its name.
        findings: one per law.
        sensitive: False where the past does not move the outputs at all: then nothing was proved.
        seed: of the inputs.
    """

    subject: str
    findings: tuple[Finding, ...]
    sensitive: bool
    seed: int = 0
    by_law: dict = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        self.by_law.update({finding.law: finding for finding in self.findings})

    def __getitem__(self, law: str) -> Finding:
        return self.by_law[law]

    @property
    def failed(self) -> list[Finding]:
        """The laws that do not hold."""
        return [finding for finding in self.findings if finding.verdict in ("silently wrong", "raises")]

    @property
    def ok(self) -> bool:
        """Something was proved, and no law failed."""
        return self.sensitive and not self.failed

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        held = sum(finding.verdict == "holds" for finding in self.findings)
        if not self.sensitive:
            return (f"{self.subject}: nothing was proved, because the past does not move the outputs; "
                    "give the weights more gain or the text more length.")
        if not self.failed:
            return f"{self.subject}: {held} laws hold, {len(self.findings) - held} are not supported."
        return f"{self.subject}: {', '.join(f'{f.law} {f.verdict}' for f in self.failed)}; {held} laws hold."

    def __str__(self) -> str:
        return "\n".join([self.sentence, *map(str, self.findings)])

    def to_json(self) -> str:
        """The report as JSON text."""
        text = json.dumps({"subject": self.subject, "seed": self.seed, "sensitive": self.sensitive,
                           "findings": [asdict(finding) for finding in self.findings]}, indent=1)
        return text.replace("Infinity", "1e999")            # JSON has no word for it; this is read as infinite

    def _repr_html_(self) -> str:
        def cell(text, extra=""):
            return f'<td style="text-align:left;vertical-align:top;padding:2px 8px;{extra}">{html.escape(str(text))}</td>'
        lines = []
        for f in self.findings:
            mark, colour = LOOKS[f.verdict]
            about = str(f).split(f.verdict, 1)[1].lstrip(": ")
            lines.append(f"<tr>{cell(f.law)}{cell(f'{mark} {f.verdict}', f'background:{colour};color:#000')}"
                         f"{cell(about or f.says)}</tr>")
        heads = "".join(f'<th style="text-align:left">{name}</th>' for name in ("law", "verdict", "evidence"))
        return (f"<p>{html.escape(self.sentence)}</p><table><thead><tr>{heads}</tr></thead>"
                f"<tbody>{''.join(lines)}</tbody></table>")
