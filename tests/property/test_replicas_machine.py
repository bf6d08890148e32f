"""Several replicas on one store: they come, go, die, stand still and lose their links while engines speak.

Each replica has a thread of its own, so that it can stand still alone, and a link of its own to a real server. Engines
speak over real sockets, and a naive model tells what each held after each of its batches. After every step the store is
looked at from outside, and every replica that runs is asked; whenever things have settled all of them answer alike.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, ClassVar, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from indexer.clock import SystemClock
from indexer.errors import DrainRefusedError, ReplicaUnknownError, SourceUnknownError
from indexer.store.failures import StoreFailure
from tests.support.core_streams import REMOVALS, STORES
from tests.support.replica_fleet import ALL_PODS, GUEST, LEASE_S, NAMES, PODS, Fleet
from tests.support.speaking_engine import QUESTIONS, said

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from indexer.node import Node
    from tests.support.proxy import Way
    from tests.support.seats import Seat, Told, Waking
    from tests.support.speaking_engine import Operation

DEADLINE_S: Final = 30.0
SAYS_AGAIN_S: Final = 0.3
OPERATIONS = st.lists(
    st.one_of(STORES, STORES, STORES, REMOVALS, st.sampled_from(["clear", "nothing"])), min_size=1, max_size=4
)
BATCHES = st.lists(st.tuples(st.sampled_from(sorted(ALL_PODS)), OPERATIONS), min_size=1, max_size=4)
POD = st.sampled_from(sorted(ALL_PODS))
PICK = st.integers(0, len(NAMES) - 1)
Batches = list[tuple[str, list["Operation"]]]
Answers = dict[str, list[dict[str, "Told"]]]
"""By replica, question and pod."""


def some(fits: Callable[[Seat], bool]) -> Any:  # noqa: ANN401  hypothesis' decorator
    """For rules that need a replica that fits."""
    return precondition(lambda machine: hasattr(machine, "fleet") and any(map(fits, machine.fleet.seats)))


def runs(seat: Seat) -> bool:
    """A replica is there."""
    return seat.runs


def answers(seat: Seat) -> bool:
    """A replica is there and does not stand still."""
    return seat.answers


class AnyTrouble(RuleBasedStateMachine):
    """Engines replay, so nothing is lost for good whatever comes together.

    `unsure` are pods of which something may be missing or too much, and whether things have settled since.
    """

    replays: ClassVar = True

    @initialize()
    def begin(self) -> None:
        print("\n--- a history begins")
        self.fleet = Fleet(replays=self.replays)
        self.engines = self.fleet.engines
        self.registered = set(PODS)
        self.cordoned: set[str] = set()
        self.drained: set[str] = set()
        self.unsure: dict[str, str] = {}
        for seat in self.fleet.seats[:2]:
            seat.start()
        self.engines_begin()
        self.settle()

    def engines_begin(self) -> None:
        """Each says that it is there."""
        self.say([(pod, ["nothing"]) for pod in ALL_PODS])

    def teardown(self) -> None:
        """Settle a last time, until all is where it belongs."""
        if not hasattr(self, "fleet"):
            return
        try:
            self.settle()
            self.until(lambda: self.fleet.misplaced(self.drained))
            self.settle()
        finally:
            self.fleet.close()

    def note(self, *what: object) -> None:
        """For whoever reads of a history that failed."""
        print(f"{time.monotonic():.2f}", *what, flush=True)

    def before_trouble(self) -> None:
        """What must be before something else goes wrong."""

    # -- engines -------------------------------------------------------------------------------------------------------

    def say(self, batches: Batches) -> None:
        for pod, operations in batches:
            engine = self.engines[pod]
            engine.say(operations)
            if "clear" in operations and self.replays:  # else it is not sure that all is known of its groups
                self.make_sure(pod)
            self.note(pod, "says", engine.last)

    def make_sure(self, pod: str) -> None:
        """The engine holds nothing now: all that was to be known of it before is void."""
        if self.unsure.get(pod) == "settled":
            del self.unsure[pod]

    @rule(batches=BATCHES)
    def engines_say(self, batches: Batches) -> None:
        self.say(batches)

    @rule(pod=POD, batches=BATCHES)
    def an_engine_restarts(self, pod: str, batches: Batches) -> None:
        self.before_trouble()
        self.note(pod, "restarts")
        self.restart_engine(pod)
        self.make_sure(pod)
        self.say([(pod, ["nothing"]), *batches])

    def restart_engine(self, pod: str) -> None:
        self.engines[pod].restart()

    # -- replicas ------------------------------------------------------------------------------------------------------

    def pick(self, number: int, fits: Callable[[Seat], bool]) -> Seat:
        """One of those that fit; a rule's condition says that there is one."""
        fitting = [seat for seat in self.fleet.seats if fits(seat)]
        return fitting[number % len(fitting)]

    @some(lambda seat: not seat.runs)
    @rule(pick=PICK)
    def a_replica_joins(self, pick: int) -> None:
        self.before_trouble()
        seat = self.pick(pick, lambda seat: not seat.runs)
        self.note(seat.name, "joins")
        seat.start()

    @some(runs)
    @rule(pick=PICK, batches=BATCHES)
    def a_replica_is_killed(self, pick: int, batches: Batches) -> None:
        self.before_trouble()
        seat = self.pick(pick, runs)
        self.note(seat.name, "is killed")
        seat.kill()
        self.drained.discard(seat.name)  # which is about a process, and not about a name
        self.say(batches)

    @some(answers)
    @rule(pick=PICK, batches=BATCHES)
    def a_replica_stops(self, pick: int, batches: Batches) -> None:
        self.before_trouble()
        seat = self.pick(pick, answers)
        self.note(seat.name, "stops")
        seat.end()
        self.drained.discard(seat.name)
        self.say(batches)

    @some(answers)
    @rule(pick=PICK, batches=BATCHES)
    def a_replica_stands_still(self, pick: int, batches: Batches) -> None:
        self.before_trouble()
        seat = self.pick(pick, answers)
        self.note(seat.name, "stands still")
        seat.hold()
        self.say(batches)

    @some(lambda seat: seat.is_held)
    @rule(pick=PICK)
    def a_replica_wakes(self, pick: int) -> None:
        self.wake(self.pick(pick, lambda seat: seat.is_held))

    def wake(self, seat: Seat) -> None:
        self.note(seat.name, "wakes")
        self.check_waking(seat, seat.wake())

    @some(answers)
    @rule(pick=PICK, at=PICK)
    def a_replica_is_drained_or_not(self, pick: int, at: int) -> None:
        self.before_trouble()
        name = self.pick(pick, answers).name
        if name in self.drained:
            self.note(name, "is drained no more")
            if self.command(at, lambda node: node.undrain_replica(name)):
                self.drained.discard(name)
        else:
            self.note(name, "is drained")
            if self.command(at, lambda node: node.drain_replica(name)):
                self.drained.add(name)

    # -- links and the store -------------------------------------------------------------------------------------------

    @rule(pick=PICK, way=st.sampled_from(["pass", "pass", "delay", "stall_requests", "stall_replies", "reset"]))
    def a_link_turns(self, pick: int, way: Way) -> None:
        self.before_trouble()
        seat = self.fleet.seats[pick]
        self.note(seat.name, "link:", way)
        seat.set_link(way)

    @rule(batches=BATCHES, seconds=st.sampled_from([0.1, 0.5, 2.5]))
    def the_store_hangs(self, batches: Batches, seconds: float) -> None:
        self.before_trouble()
        self.note("the store hangs for", seconds)
        self.fleet.store.freeze()
        self.say(batches)
        self.pass_time(seconds)
        self.fleet.store.thaw()

    @rule(batches=BATCHES, seconds=st.sampled_from([0.5, 2.5]))
    def the_store_hangs_and_nothing_else(self, batches: Batches, seconds: float) -> None:
        """No owner changes because of it, and no source begins anew; leases were renewed since the last outage."""
        self.settle()
        self.until(lambda: self.fleet.misplaced(self.drained))
        self.pass_time(LEASE_S)
        self.until(lambda: self.fleet.misplaced(self.drained))  # a machine that stalls lets a lease lapse meanwhile
        owners, generations = self.fleet.witness.owners(), self.fleet.witness.generations()
        self.the_store_hangs(batches, seconds)
        thawed_at = SystemClock().now()
        self.until(lambda: [seat.name for seat in self.fleet.running if seat.heard_at < thawed_at])
        are_back = all(seat.heard_at - thawed_at < LEASE_S for seat in self.fleet.running)
        self.settle()
        # Who was not run for a lease, as on a machine that stalls, is taken for dead.
        assert not are_back or self.fleet.witness.owners() == owners
        cleared = {pod for pod, operations in batches if "clear" in operations}  # which is a new generation
        after = self.fleet.witness.generations()
        assert {source for source in after if after[source] != generations[source]} <= {
            source for source in after if source.pod in cleared
        }

    @rule(batches=BATCHES)
    def the_store_is_emptied(self, batches: Batches) -> None:
        """While nothing is on its way: what is given away when the store loses it is lost (decisions/gaps.md)."""
        self.settle()
        self.until(lambda: self.fleet.misplaced(self.drained) or self.fleet.untold())
        self.note("the store is emptied")
        self.fleet.witness.look()
        self.fleet.look.flushall()
        self.fleet.witness.forget()
        self.drained.clear()
        self.say(batches)
        self.settle()

    # -- commands ------------------------------------------------------------------------------------------------------

    def command(self, pick: int, what: Callable[[Node], Coroutine[Any, Any, Any]]) -> bool:
        """At some replica; whether it is known to be in the store. One that does not know the pod yet says so."""
        seat = self.pick(pick, answers)
        try:
            answer = seat.thread.run(what(seat.node))
        except (SourceUnknownError, StoreFailure, DrainRefusedError, ReplicaUnknownError) as error:
            self.note(seat.name, "says:", repr(error), error)
            return False
        self.note(seat.name, "answers", answer)
        return True

    @some(answers)
    @rule(pick=PICK, pod=st.sampled_from(sorted(PODS)), is_settled=st.booleans())
    def a_pod_is_cleared(self, pick: int, pod: str, is_settled: bool) -> None:
        if is_settled:
            self.settle()
        self.note(pod, "is cleared")
        done = self.command(pick, lambda node: node.clear_source(pod, None))
        if done and is_settled and pod not in self.unsure:
            self.engines[pod].cleared_by_caller()
        else:
            self.unsure[pod] = "since now"

    @some(answers)
    @rule(pick=PICK)
    def a_guest_comes_or_goes(self, pick: int) -> None:
        """What was given to a replica whose link is cut may come to nothing, or to something without its knowing."""
        self.settle()
        if GUEST in self.registered:
            self.note(GUEST, "goes")
            assert self.command(pick, lambda node: node.remove_source(GUEST, None))
            self.registered.remove(GUEST)
            self.cordoned.discard(GUEST)
        else:
            self.note(GUEST, "comes")
            descriptor = self.fleet.descriptor(GUEST)
            assert self.command(pick, lambda node: node.add_source(descriptor))
            self.registered.add(GUEST)
            self.guest_came()

    def guest_came(self) -> None:
        """It says again what it said before."""
        self.engines[GUEST].heard_anew()

    @some(answers)
    @rule(pick=PICK, pod=POD)
    def a_pod_is_cordoned_or_not(self, pick: int, pod: str) -> None:
        self.settle()
        if pod in self.registered:
            cordoned = pod not in self.cordoned
            self.note(pod, "cordoned:", cordoned)
            assert self.command(pick, lambda node: node.cordon_source(pod, None, cordoned=cordoned))
            self.cordoned ^= {pod}

    # -- at every step -------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.02, 0.1, 0.5, LEASE_S]))
    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    @invariant()
    def the_store_is_written_in_order(self) -> None:
        if hasattr(self, "fleet"):
            self.fleet.witness.look()

    @invariant()
    def nobody_says_what_is_not_so(self) -> None:
        for seat in self.fleet.seats if hasattr(self, "fleet") else ():
            if seat.answers:
                self.check(seat.name, seat.read())

    def check(self, name: str, told_by_question: list[dict[str, Told]]) -> None:
        """Of each engine: what is called exact is what it held, and nothing is told that it never announced."""
        for number, told in enumerate(told_by_question):
            for pod, (entry, batch) in told.items():
                why = (name, number, pod, batch, entry)
                engine = self.engines[pod]
                if entry.state == "new":
                    assert not entry.matched_tokens, why
                elif entry.state == "live" and entry.bound in {"exact", "lower"} and entry.reason != "cordoned":
                    assert batch is not None, why
                    held = engine.held[batch][number]
                    assert entry.matched_tokens <= held.matched, (why, held)
                    assert entry.bound == "lower" or said(entry) == held, (why, held)
                else:
                    lives = range(engine.life + 1) if batch is None or entry.state == "suspect" else [batch.life]
                    assert entry.matched_tokens <= engine.ever_matched(number, lives), why

    def check_waking(self, seat: Seat, waking: Waking) -> None:
        """Who stood still for longer than its lease does not know whether it still owns what it owned."""
        self.check(f"{seat.name}, waking", waking.told)
        if waking.still_s > LEASE_S:
            for told in waking.told:
                for pod in waking.owned & set(told):
                    assert told[pod].entry.state != "live", (seat.name, waking.still_s, told[pod])

    # -- in the end ----------------------------------------------------------------------------------------------------

    @rule()
    def settle(self) -> None:
        """All is well: all that engines said is known to all, and they answer alike."""
        self.note("settling")
        for seat in self.fleet.seats:
            seat.set_link("pass")
            if seat.is_held:
                self.wake(seat)
        if not self.fleet.running:
            self.fleet.seats[0].start()
        self.until(self.differences)
        for pod in self.unsure:
            self.unsure[pod] = "settled"
        self.note("settled:", *self.fleet.witness.owners())

    def until(self, differences: Callable[[], list[object]]) -> None:
        """Until there are none. What holds at every step holds on the way."""
        ends_at = time.monotonic() + DEADLINE_S
        while found := differences():
            self.the_store_is_written_in_order()
            self.nobody_says_what_is_not_so()
            if time.monotonic() > ends_at:
                for each in found[:4]:
                    self.note("it is not so:", each)
                pytest.fail("what must come does not come; see what was printed")
            time.sleep(0.02)

    def differences(self) -> list[object]:
        """From what must be when all is well."""
        told = {seat.name: seat.read() for seat in self.fleet.running}
        owners = enumerate(self.fleet.witness.owners())
        found: list[object] = [(f"partition {number}", owner) for number, owner in owners if owner not in told]
        for name, by_question in told.items():
            found += [(name, pod, "is told, or is not") for pod in set(by_question[0]) ^ self.registered]
        return found or [each for pod in self.registered for each in self.differences_of(pod, told)]

    def differences_of(self, pod: str, told: Answers) -> Iterator[object]:
        """Of one pod."""
        engine = self.engines[pod]
        for number in range(len(QUESTIONS)):
            first, *others = [by_question[number][pod] for by_question in told.values()]
            if not self.is_right(pod, number, first):
                yield pod, number, *told, first, engine.last, engine.expected(number)
            elif pod not in self.cordoned:
                yield from (
                    (pod, number, *told, first, other) for other in others if of_source(other) != of_source(first)
                )

    def is_right(self, pod: str, number: int, told: Told) -> bool:
        """Whether this may be said of it when all is well."""
        engine, entry = self.engines[pod], told.entry
        if pod in self.cordoned:
            return entry.reason == "cordoned"
        if told.batch != engine.last:
            return False
        if pod in self.unsure:
            return entry.state in {"live", "suspect"}
        return entry.state == "live" and (entry.bound, said(entry)) in engine.expected(number)


class OneTroubleAtATime(AnyTrouble):
    """Engines say nothing twice: what a replica did not hear is lost, unless another listened along."""

    replays: ClassVar = False
    says_again_at = 0.0

    def engines_begin(self) -> None:
        """When owner and standby listen: on a slow machine leases may have ended and sockets changed hands by then."""
        self.until(lambda: self.fleet.uncovered(self.registered))
        for pod in PODS:
            self.engines[pod].simulator.wait_subscribers(2)
        super().engines_begin()

    def before_trouble(self) -> None:
        """All is well, and others listen along; without any, one replica may be the only one to know something."""
        self.settle()
        if not self.has_standbys:
            self.unsure |= dict.fromkeys(self.registered, "since now")

    def restart_engine(self, pod: str) -> None:
        """It says nothing before all who listened do so again."""
        simulator = self.engines[pod].simulator
        listening = simulator.subscribers
        super().restart_engine(pod)
        simulator.wait_subscribers(listening)

    def guest_came(self) -> None:
        """What it said before is not to be had any more."""
        self.engines[GUEST].simulator.wait_subscribers(1)
        self.unsure[GUEST] = "since now"

    def differences(self) -> list[object]:
        """Who may have missed an engine's last word hears another one."""
        found = super().differences()
        if found and time.monotonic() > self.says_again_at:
            self.say([(pod, ["nothing"]) for pod in self.unsure])
            self.says_again_at = time.monotonic() + SAYS_AGAIN_S
        return found or (self.fleet.uncovered(self.registered) if self.has_standbys else [])

    @property
    def has_standbys(self) -> bool:
        """Whether there is anybody who could listen beside an owner."""
        return len({seat.name for seat in self.fleet.running} - self.drained) > 1


def of_source(told: Told) -> tuple[object, ...]:
    """What every replica says alike."""
    return told.entry.state, told.entry.bound, told.entry.generation, told.batch, said(told.entry)


def run(machine: type[AnyTrouble], examples: int, steps: int) -> None:
    """No shrinking: a history that fails takes a deadline's time to fail again, and need not."""
    number = random.getrandbits(32)
    print("seed", number)
    tried = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_machine(seed(number)(type(machine.__name__, (machine,), {})), settings=tried)


@pytest.mark.timeout(600)
def test_any_trouble() -> None:
    """A few histories with engines that replay."""
    run(AnyTrouble, 3, 12)


@pytest.mark.timeout(600)
def test_one_trouble_at_a_time() -> None:
    """A few histories with engines that do not."""
    run(OneTroubleAtATime, 3, 12)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("machine", [AnyTrouble, OneTroubleAtATime])
def test_any_history_for_long(machine: type[AnyTrouble]) -> None:
    """Many, and longer."""
    run(machine, 40, 40)
