"""Runs of one protocol's scenario, with machines under test in the place of the right ones."""

from functools import partial

from waystation.sim.run import SimResult, run_seed


class Runs:
    """Runs seeds of one scenario."""

    def __init__(self, protocol, scenario, hours, options):
        """Run ``scenario`` for ``hours``; ``options`` has the name of its argument by base class of machine."""
        self._protocol, self._scenario, self._hours, self._options = protocol, scenario, hours, options

    def run_with(self, kind, seed, plan=None, hours=None, sink=None, disks=False) -> SimResult:
        """Run one seed whose machines are of this class, or made by this function; None for the right ones."""
        make = self.scenario_with(kind, plan)
        return run_seed(self._protocol, seed, hours or self._hours, sink=sink, make=make, disks=disks)

    def scenario_with(self, kind, plan=None):
        """Return the scenario with such machines."""
        options = {} if kind is None else {self._option_of(kind): kind}
        return partial(self._scenario, plan=plan, **options)

    def first_failure(self, kind, seeds, plan=None, hours=None, disks=False):
        """Return which invariant the first failing seed names, or None."""
        failures = (self.run_with(kind, seed, plan, hours, disks=disks).failure for seed in seeds)
        return next((failure.invariant for failure in failures if failure is not None), None)

    def lines_of(self, plan, hours=None, seed=1):
        """Return the trace of a run that breaks no invariant."""
        lines = []
        assert self.run_with(None, seed, plan, hours, lines.append).failure is None
        return lines

    def _option_of(self, kind):
        bases = (kind if isinstance(kind, type) else type(kind)).__mro__
        return next(self._options[base] for base in bases if base in self._options)
