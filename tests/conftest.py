"""How hard the property tests try: `short` in make test, `long` in make soak (--hypothesis-profile)."""

from hypothesis import HealthCheck, settings

# No deadline and no check of speed: a shared machine is slow whenever it likes, and no test asserts on time.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("short", _UNTIMED, max_examples=100, stateful_step_count=40)
settings.register_profile("long", _UNTIMED, max_examples=5_000, stateful_step_count=200, print_blob=True)
settings.load_profile("short")
