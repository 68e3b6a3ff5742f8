"""An audit as a Markdown page, and what it says on the screen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gfl_lightning.audit.audit import Audit
from gfl_lightning.audit.findings import Finding
from gfl_lightning.audit.stage import BRIEFLY

HEAD = ("adversary", "attack", "knows", "success", "guessing", "targets", "verdict")
EXPLAINED = """\
Success and guessing are mean scores from 0 to 1 over the targets, with a 95 % interval: Clopper–Pearson where a score
is right or wrong, else bootstrap over targets. Guessing has the same side knowledge and no message. "No better than
guessing" means that the interval of the difference, over the same targets, reaches 0. Who is near whom is asked of all
attackers about the same public clients: with few of those, luck is shared, and its interval too narrow. An attack that
fails proves nothing: somebody may know a better one. Noise on the uploads that are attacked is a fresh draw of the law
in force."""


def page(title: str, found: Audit, about: Sequence[str]) -> str:
    """The page of one audit."""
    parts = [f"# What the messages reveal: {title}", "\n\n".join(about), summary(found), EXPLAINED]
    parts[3:3] = ["## In plain words", in_words(found.findings), "## Attack by attack"]
    parts += ["![Success of each attack beside guessing](audit.png)", table(found.findings), "## The attacks"]
    parts.append(glossary(found.findings))
    return "\n\n".join(parts) + "\n"


def in_words(findings: Sequence[Finding]) -> str:
    """What each adversary learns beyond guessing, by its best attack of a kind."""
    lines = []
    for adversary in dict.fromkeys(one.adversary for one in findings):
        mine = [one for one in findings if one.adversary == adversary]
        best = {one.attack: one for one in sorted(mine, key=lambda one: one.success - one.blind)}
        learned = [one.verdict for one in mine if one.tells and best[one.attack] is one]
        told = "; ".join(learned) if learned else "none of the attacks learned notably more than guessing"
        lines.append(f"- **{adversary.capitalize()}:** {told}.")
    return "\n".join(lines)


def summary(found: Audit) -> str:
    """Accuracy, and ε claimed and proved."""
    lines = [] if math.isnan(found.accuracy) else [f"Test accuracy {100 * found.accuracy:.1f} %."]
    lines.append(privacy(found))
    return " ".join(lines)


def privacy(found: Audit) -> str:
    """The claimed ε beside what membership tests prove of it."""
    proved = proved_epsilon(found.findings)
    claimed = "no ε is claimed"
    if math.isfinite(found.claimed_epsilon):
        claimed = f"ε = {found.claimed_epsilon:.4g} is claimed"
    elif math.isfinite(found.nominal_epsilon):
        claimed += f" (nominal ε = {found.nominal_epsilon:.4g}: noise from a seed hides nothing from who knows it)"
    if math.isnan(proved):
        return f"Against the server {claimed}."
    return f"Against the server {claimed}; the attacks prove ε ≥ {proved:.2f}."


def proved_epsilon(findings: Sequence[Finding]) -> float:
    """The largest ε that a membership test proves; nan where there was none."""
    proved = [one.empirical_epsilon for one in findings if not math.isnan(one.empirical_epsilon)]
    return max(proved, default=math.nan)


def table(findings: Sequence[Finding]) -> str:
    """A row for each attack."""
    rows = [HEAD, ("---",) * len(HEAD), *(_cells(finding) for finding in findings)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def glossary(findings: Sequence[Finding]) -> str:
    """What each attack wants, knows and is scored by."""
    lines = {
        f"- **{one.attack}** ({one.adversary}): {one.aim}. Scored by {one.measure}. Knows: {one.knowledge}."
        for one in findings
    }
    return "\n".join(sorted(lines))


def screen(found: Audit) -> str:
    """A line for each attack, for a terminal."""
    lines = [f"{'accuracy':>17}  {100 * found.accuracy:.2f} %", f"{'privacy':>17}  {privacy(found)}"]
    for one, name in zip(found.findings, names(found.findings), strict=True):
        score = f"{one.success:.2f} ({one.low:.2f} to {one.high:.2f}), guessing {one.blind:.2f}"
        lines.append(f"{one.adversary:>17}  {name:<42} {score:<36} {one.verdict}")
    return "\n".join(lines)


def names(findings: Sequence[Finding]) -> list[str]:
    """What each is called: the attack, and what it knows besides where others have the same attack."""
    attacks = [one.attack for one in findings]
    return [
        f"{one.attack} ({BRIEFLY.get(one.knowledge, one.knowledge)})" if attacks.count(one.attack) > 1 else one.attack
        for one in findings
    ]


def _cells(one: Finding) -> tuple[str, ...]:
    success = f"**{one.success:.2f}** ({one.low:.2f}–{one.high:.2f})"
    attack, knows = f"{one.attack}: {one.aim}", BRIEFLY.get(one.knowledge, one.knowledge)
    return one.adversary, attack, knows, success, f"{one.blind:.2f}", f"{one.targets}", one.verdict
