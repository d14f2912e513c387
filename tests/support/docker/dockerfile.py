"""A Dockerfile as its stages, and the files of a build context."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from docker.utils.build import exclude_paths
from dockerfile_parse import DockerfileParser

TOP = Path(__file__).resolve().parents[3]
DOCKERFILE = TOP / "docker" / "Dockerfile"


@dataclass(frozen=True, slots=True)
class Instruction:
    """`RUN ls` is the instruction RUN with the text `ls`."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The JSON list of the exec form, or the words of a shell."""
        if self.text.startswith("["):
            return [str(word) for word in json.loads(self.text)]
        return shlex.split(self.text)

    @property
    def pairs(self) -> dict[str, str]:
        """NAME=value pairs, as in ENV and LABEL."""
        return {name: value for name, _, value in (word.partition("=") for word in self.words)}

    @property
    def flags(self) -> dict[str, str]:
        """Options --name=value before the rest."""
        return dict(re.findall(r"(?:^|\s)--([a-z-]+)=(\S+)", self.text.partition("CMD")[0]))

    @property
    def arguments(self) -> list[str]:
        return [word for word in self.words if not word.startswith("--")]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: FROM `base` AS `name`, and the instructions after it."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]

    def all(self, name: str) -> list[Instruction]:
        return [instruction for instruction in self.instructions if instruction.name == name]

    def last(self, name: str) -> Instruction:
        """Returns the effective instruction: the last one of this name."""
        return self.all(name)[-1]

    @property
    def health_command(self) -> list[str]:
        return Instruction("CMD", self.last("HEALTHCHECK").text.partition("CMD ")[2]).words

    @property
    def labels(self) -> dict[str, str]:
        return {name: value for label in self.all("LABEL") for name, value in label.pairs.items()}


def stages(path: Path = DOCKERFILE) -> dict[str, Stage]:
    """Returns every stage by its name, in order."""
    found: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    with path.open("rb") as file:
        structure = DockerfileParser(fileobj=file).structure
    for part in structure:
        instruction = Instruction(part["instruction"], part["value"])
        if instruction.name == "COMMENT":
            continue
        if instruction.name == "FROM":
            base, _, name = instruction.words
            for argument, value in arguments.items():
                base = base.replace(f"${{{argument}}}", value)
            found[name] = Stage(name, base, ())
        elif not found:
            assert instruction.name == "ARG", instruction
            arguments |= instruction.pairs
        else:
            name, stage = next(reversed(found.items()))
            found[name] = Stage(name, stage.base, (*stage.instructions, instruction))
    return found


def context_files(top: Path = TOP) -> list[str]:
    """Returns the build context: the files below `top` that .dockerignore does not exclude."""
    lines = (top / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    found: set[str] = exclude_paths(str(top), patterns)
    return sorted(path for path in found if (top / path).is_file())
