"""The help of every command: each says what it does and what each of its flags is, once."""

from __future__ import annotations

import argparse
import re

import pytest

from api.cli.parser import build_parser

WORD = re.compile(r"[a-z]+(?: [a-z]+)+")


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """This one and all below it."""
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()):
                found += parsers(each)
    return found


COMMANDS = {each.prog: each for each in parsers(build_parser("1"))}
TYPED = [
    pytest.param(command, action, id=f"{command} {action.option_strings[0]}")
    for command, parser in COMMANDS.items()
    for action in parser._actions
    if action.option_strings and action.type is not None
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_every_flag_says_what_it_is(command: str) -> None:
    """A command by a description; flags, arguments and commands below it by a help."""
    parser = COMMANDS[command]
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]

    assert parser.description
    assert [] == [each.dest for each in parser._actions if not each.help and each not in below]
    assert [] == [choice.dest for each in below for choice in each._choices_actions if not choice.help]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_flag_says_a_thing_twice(command: str) -> None:
    """As a phrase of several words within one help."""
    for action in COMMANDS[command]._actions:
        phrases = re.split(r"[,:;()]", action.help or "")
        told = [phrase.strip() for phrase in phrases if WORD.fullmatch(phrase.strip())]
        assert len(set(told)) == len(told), action.help


@pytest.mark.parametrize(("command", "action"), TYPED)
def test_a_value_of_the_wrong_kind_is_answered_by_what_is_wanted(command: str, action: argparse.Action) -> None:
    """Not by the name of what reads it; what takes any text has no wrong kind."""
    parser = COMMANDS[command]
    said = ""
    try:
        parser._get_value(action, "?,?")  # type: ignore[attr-defined]  # what parse_args does with it
    except argparse.ArgumentError as error:
        said = str(error)

    assert not said or ("wanted" in said and "invalid" not in said)


def test_a_port_that_is_none_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    """With the flag, and what it takes."""
    with pytest.raises(SystemExit):
        build_parser("1").parse_args(["serve", "--grpc-port", "of"])

    assert "argument --grpc-port: a port or off wanted, got 'of'" in capsys.readouterr().err
