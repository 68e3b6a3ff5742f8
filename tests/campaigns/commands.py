"""Commands beside `fit`: configurations, tables, checkpoints and folders that are none, with options of every kind."""

from __future__ import annotations

import copy
import random
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from campaigns.campaign import Campaign, Outcome, command_line
from campaigns.checkpoints import NODES, ONCE, QUIET
from campaigns.configurations import VALUES

ENOUGH = 4.0  # seconds of computation after which a command has plainly not refused its input
PLACES = ["nothing", "s/samples.csv", "s", "/proc/x", "/dev/null/x", "/dev/full", "", "new/er", "ä b", "p.csv", "p.txt"]
WORDS = ["0", "-1", "1", "2", "abc", "1e9", "nan", "", "99999999999999999999", "--nope", *PLACES]
OPTIONS: dict[str, list[str]] = {
    "compare": ["--splits", "--out", "--nope"],
    "tune": ["--splits", "--candidates", "--out", "--nope"],
    "audit": [
        *("--trainer.max_steps", "--audit.fellows", "--model.protection.hidden.std", "--nope", "--model.estimator"),
        *("--audit.victims", "--audit.shadows", "--model.records", "--model.aggregator", "--model.personal"),
    ],
    "export": ["--ckpt_path", "--out", "--nope", "--trainer.max_steps"],
    "predict": ["--output", "--data.samples", "--data.edges", "--verbose", "--model.seed", "--trainer.max_steps"],
    "test": ["--verbose", "--data.samples", "--data.seed", "--data.label", "--trainer.default_root_dir", "--nope"],
    "validate": ["--verbose", "--data.edges", "--data.task", "--model.aggregator.alpha", "--trainer.logger"],
}
SHORT: dict[str, list[str]] = {"compare": ["--splits=1"], "tune": ["--splits=1", "--candidates=2"]}
FOLDERS: dict[str, list[str]] = {
    "server": [],
    "second": [],
    "status": [],
    "site": ["--samples"],
    "predict": ["--samples", "--output"],
}
OF_SITES: dict[str, list[Any]] = {
    "masking": [{}, {"bits": 32, "fraction": 20}, {"least": 3}, {"split": 4, "colluding": 1}, {"threshold": 2}, 3],
    "topology": ["two_servers", "one_server", "nowhere"],
    "release": [True, False, "yes"],
    "timeout": [60, 0, -1, "abc"],
    "least_sites": [1, 2, 3],
    "server": [{}, {"host": "localhost", "port": 8002}, {"port": 10**6}, {"host": "a b"}],
    "public": [{"ranges": {"age": [0, 120]}}, {"classes": ["ill", "well"]}, {"nope": 1}, 3],
}
BROKEN = [b"", b"model: 3\n", b"trainer: [\n", b"\xff\xfe\x00", b"a: &a [*a]\n"]
FOREVER = ("trainer.max_steps", "trainer.max_time", "trainer.logger", "trainer.model_registry")


class EnoughError(BaseException):
    """A command is at work; nothing may catch it."""


@dataclass
class Commands(Campaign):
    """Everything is refused with a sentence, or taken on: long work is not waited for."""

    def __post_init__(self) -> None:
        self.name = "other commands"

    def prepare(self) -> None:
        """A starter and a model that was trained on it."""
        assert command_line("init", f"{self.folder}/s").kind == "ran"
        config = yaml.safe_load((self.folder / "s/config.yaml").read_text())
        config["trainer"] = {"max_steps": 2, "enable_progress_bar": False}
        self.config: dict[str, Any] = config
        (self.folder / "fit.yaml").write_text(yaml.safe_dump(config))
        root = f"--trainer.default_root_dir={self.folder}/runs"
        made = command_line("fit", f"--config={self.folder}/fit.yaml", "--report=false", root)
        assert made.kind == "ran", made
        (self.best,) = self.folder.rglob("best.ckpt")
        root = f"--trainer.default_root_dir={self.folder}/private"
        made = command_line("fit", *NODES, *ONCE, *QUIET, "--trainer.max_steps=2", root)
        assert made.kind == "ran", made
        (self.private,) = (self.folder / "private").rglob("best.ckpt")

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        shutil.copytree(self.folder / "s", "s")
        command = draw.choice([*OPTIONS, "compare", "tune", "deploy", "deploy", "init", "reproduce", "nonsense"])
        arguments = [command, *self.arguments(command, draw)]

        def enough(*_: Any) -> None:
            raise EnoughError

        before = signal.signal(signal.SIGVTALRM, enough)
        signal.setitimer(signal.ITIMER_VIRTUAL, ENOUGH)
        try:
            return command_line(*arguments)
        except EnoughError:
            return Outcome("ran")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def arguments(self, command: str, draw: random.Random) -> list[str]:
        """The rest of a command line."""
        if command == "init":
            return draw.choices(PLACES, k=draw.choice([0, 1, 1, 1, 2]))
        if command == "nonsense":
            return draw.choices(WORDS, k=2)
        if command == "reproduce":  # one of them is always wrong, as the studies start processes of their own
            wrong = draw.choice(["--only nothing", "--repetitions 0", "--jobs x", "--out /dev/full"])
            return [*draw.choice([[], ["--quick"], ["--only", "dnc"], ["--nope"]]), *wrong.split()]
        if command == "deploy":
            return self.deployment(draw)
        if command == "export":
            file = draw.choice([self.private, self.private, self.private, self.best, "s/config.yaml"])
            given = [f"--ckpt_path={file}", f"--out={draw.choice(PLACES)}"]
            return given + draw.choice([[], [], [draw.choice(OPTIONS[command])], [draw.choice(WORDS)]])
        given = [] if draw.random() < 0.05 else [f"--config={self.written(draw)}"]
        given += SHORT.get(command, [])  # so that what is taken on comes to its end; options that are drawn win
        if command in ("predict", "test", "validate") and draw.random() < 0.9:
            given.append(f"--ckpt_path={draw.choice([str(self.best)] * 9 + ['s/config.yaml'])}")
        for _ in range(draw.choice([0, 0, 1, 2])):
            option, word = draw.choice(OPTIONS[command]), draw.choice(WORDS)
            given += draw.choice([[option, word], [f"{option}={word}"], [option]])
        return given

    def deployment(self, draw: random.Random) -> list[str]:
        """Arguments of `deploy`: kits from any configuration, and commands on folders that are none."""
        if draw.random() < 0.5:
            clinics = [f"clinic {number}" for number in range(1, 13)]
            sites: Any = {"sites": {"a": clinics[:6], "b": clinics[6:]}}
            for name in draw.sample(list(OF_SITES), draw.choice([0, 1, 1, 2])):
                sites[name] = draw.choice(OF_SITES[name])
            sites = sites if draw.random() < 0.5 else _changed(sites, draw)
            Path("sites.yaml").write_text(yaml.safe_dump(sites))
            return ["prepare", f"--config={self.written(draw)}", "--sites=sites.yaml", f"--out={draw.choice(PLACES)}"]
        command = draw.choice(list(FOLDERS))
        given = [command, draw.choice(PLACES)]
        for option in FOLDERS[command]:
            given += [option, draw.choice(PLACES)] if draw.random() < 0.8 else []
        return given if draw.random() < 0.9 else ["demo", "--rounds", draw.choice(["0", "-1", "abc", ""])]

    def written(self, draw: random.Random) -> str:
        """A configuration file, mutated, or none."""
        what = draw.random()
        if what < 0.1:
            return draw.choice(PLACES)
        if what < 0.15:
            Path("c.yaml").write_bytes(draw.choice(BROKEN))
            return "c.yaml"
        config = self.config
        for _ in range(draw.choice([0, 1, 1, 2])):
            config = _changed(config, draw)
        Path("c.yaml").write_text(yaml.safe_dump(config))
        return "c.yaml"


def _changed(whole: Any, draw: random.Random) -> Any:
    """A copy with something somewhere replaced, removed or added."""
    whole = copy.deepcopy(whole)
    place, path = whole, ""
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return whole
        key = draw.choice(keys)
        path = f"{path}.{key}".removeprefix(".")
        inner = place[key]
        if isinstance(inner, (dict, list)) and inner and draw.random() < 0.85:
            place = inner
            continue
        what = draw.random()
        if path in FOREVER:
            place[key] = draw.choice([-1, 0, 1, "abc", None])
        elif what < 0.2:
            del place[key]
        elif what < 0.3 and isinstance(place, dict):
            place[draw.choice(["nope", "seed", 3])] = draw.choice(VALUES)
        else:
            place[key] = draw.choice(VALUES)
        return whole
