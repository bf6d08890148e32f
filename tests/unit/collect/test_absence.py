"""What a reconnect leaves open."""

from __future__ import annotations

from dataclasses import replace

from indexer.collect.absence import Absence
from indexer.collect.options import CollectOptions
from indexer.collect.sequence import Gap

OPTIONS = replace(CollectOptions(), rcvhwm_messages=3, min_engine_restart_s=5.0)
GAP = Gap(5, 6)


def restart(absence: Absence) -> bool:
    """Whether a jump now means one."""
    return absence.means_restart(GAP)


def test_the_first_connection_leaves_nothing_open() -> None:
    """There was nobody before."""
    absence = Absence(OPTIONS)

    assert not absence.up(0.0)
    assert absence.connected
    assert absence.settled
    assert not absence.unexamined


def test_a_reconnect_is_open_until_examined() -> None:
    """Long away: a jump means a restart; examined, it means a gap."""
    absence = Absence(OPTIONS)
    absence.up(0.0)
    absence.down(10.0)

    assert not absence.connected
    assert absence.up(15.0)
    assert restart(absence)
    absence.examined()
    assert not restart(absence)


def test_absence_counts_from_the_first_sign_to_the_return() -> None:
    """A second loss noticed while it is lost changes nothing; short absences are gaps; the longest counts."""
    absence = Absence(OPTIONS)
    absence.up(0.0)
    absence.down(10.0)
    absence.down(14.0)
    absence.up(14.9)
    assert not restart(absence)

    absence.down(20.0)
    absence.up(25.0)
    absence.down(30.0)
    absence.up(30.1)
    assert restart(absence)


def test_a_return_without_a_loss_seen_has_no_length() -> None:
    """Events can be missed; then nothing says that the connection was away."""
    absence = Absence(OPTIONS)
    absence.up(0.0)

    assert absence.up(100.0)
    assert absence.unexamined
    assert not restart(absence)


def test_settled_when_empty_or_after_the_high_water_mark() -> None:
    """The socket can hold no more of the old connection than that."""
    absence = Absence(OPTIONS)
    absence.up(0.0)
    absence.down(1.0)
    absence.up(2.0)

    absence.read(2)
    assert not absence.settled
    absence.read(5)
    assert absence.settled

    absence.down(3.0)
    absence.up(4.0)
    assert not absence.settled
    absence.socket_empty()
    assert absence.settled
