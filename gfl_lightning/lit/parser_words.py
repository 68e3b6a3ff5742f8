"""What jsonargparse says of a value that has no option's type, in this program's words."""

from __future__ import annotations

import re

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "NoneType": "null",
    "list": "a list",
    "tuple": "a list",
    "collections.abc.Iterable": "a list",
    "dict": "options by name",
}
EXPECTED: dict[str, str] = {
    r"Expected a <class '([^']*)'>": "",
    r"Expected a (?:typing\.)?Literal\[(.*)\]": "one of ",
    r"Expected a dot import path string.*": "a class by its name",
    r"Unexpected import path format.*": "a class by its name",
    r"Expected an instantiatable class.*": "a class by its name",
    r"Import path does not correspond to a subclass of (\w+)": "a class of ",
    r"Unable to load config.*": "options by name",
    r"Not a valid subclass of (\w+)": "a class of ",
}
VALUE = re.compile(r"(?:Got value|Given value|Unable to load config|Expected a dot import path string):? (.*)")
NOISE = (
    *("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a path but"),
    *("Subclass types expect", "a class path (str)", "a dict with"),
)


def one_sentence(message: str) -> str:
    r"""What a parser says, with the option, what it may be and what it is where that can be read from it.

    >>> one_sentence('Parser key "local.steps":\n  Expected a <class \'int\'>. Got value: ten')
    'local.steps must be a whole number, got ten.'
    >>> one_sentence("unrecognized arguments: --nope")
    'unrecognized arguments: --nope.'
    """
    key = re.search(r'Parser key "([^"]*)"', message)
    lines = [re.sub(r'^\s*(- )?\s*(Parser key "[^"]*":)?\s*', "", line).strip() for line in message.splitlines()]
    said = list(dict.fromkeys(line for line in lines if line and not line.startswith(NOISE)))
    kinds = [_kind(line.partition(". Got value")[0]) for line in said]
    if key and kinds and all(kinds):
        received = VALUE.findall(message)
        value = received[-1] if received and not received[-1].startswith("NestedArg") else "options alone"
        return f"{key[1]} must be {' or '.join(dict.fromkeys(kinds))}, got {value[:200]}."
    text = "; ".join(said)[:400].rstrip(".") or "a value was not understood"
    return f"{key[1]}: {text}." if key else f"{text}."


def _kind(line: str) -> str:
    """The kind of value that a line asks for; empty where it says something else."""
    for pattern, words in EXPECTED.items():
        found = re.fullmatch(pattern, line)
        if found is not None:
            name = found[1] if found.groups() else ""
            return words + KINDS.get(name, name.replace("'", "") if words else name.rpartition(".")[2])
    return ""
