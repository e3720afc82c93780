"""One tree of exceptions. The second level is the boundary an error belongs to.

    MarlGemError
      RegistryError        asking for a scenario
        UnknownScenario      no such id
        UnavailableScenario  a known id that cannot work here
        InvalidOption        make() or reset() was given something the scenario does not take
      MissingPackage       an optional package is not installed
      EnvError             origin "env"
        InvalidAction        actions from the wrong agents, or of the wrong type
        EpisodeOver          step without a live episode
        ScenarioFault        the scenario raised or broke its contract
        SelectorError        the turn order names no agent, or one that is not there
        PromiseBroken        a check of marl_gem.testing found that the scenario breaks the contract
      AgentError           origin "agent"
        ReplayDiverged       an agent observes something else than in the record that it repeats
      LLMError             origin "llm"
        TransientLLMError    may go well when asked again
          ServerUnreachable    the request was not taken: the server is unreachable
        ContextTooLong       the prompt does not fit the model
      ResourceError        origin "tool": a pool could not give a resource, such as a process
        SandboxError         a sandbox could not start, or ended by itself
          SandboxUnavailable   this machine cannot confine programs
      ConversionError      an env that does not fit another library's API, or cannot be put into text
      RecordError          a record that cannot be written or read
      ConfigError          a configuration that is inconsistent, or differs from the run's
      JournalError         a run's folder that cannot be read or written, or that another process works on
      WorkerError          a worker process of an evaluation that cannot start, or cannot play
      CheckpointError      a checkpoint or a model's folder that is missing, damaged or of another scenario
      TrainingError        a training that has diverged: advantages, a gradient or weights are not finite numbers

A message says what failed, where, and what to do next.
"""

from __future__ import annotations


class MarlGemError(Exception):
    """The root: catch it to catch everything that marl_gem raises on purpose."""


class RegistryError(MarlGemError):
    """Something is wrong with how a scenario was asked for."""


class UnknownScenario(RegistryError):
    """No scenario has this id."""


class UnavailableScenario(RegistryError):
    """The id is known, but the scenario cannot work on this machine; the message says what would help."""


class InvalidOption(RegistryError):
    """The scenario does not take such an option, or not with this value."""


class MissingPackage(MarlGemError, ImportError):
    """An optional package is missing; the message holds the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}. Install it with: pip install 'marl-gem[{extra}]'")


class EnvError(MarlGemError):
    """The environment's side of the contract."""


class InvalidAction(EnvError):
    """Actions came from the wrong agents or have the wrong type. Nothing has changed in the env."""


class EpisodeOver(EnvError):
    """There is no live episode: before reset, after the end, or after a fault."""


class ScenarioFault(EnvError):
    """The scenario's own code raised, or what it reported breaks the contract."""


class SelectorError(EnvError):
    """The turn order names no agent, or one that is not in the episode."""


class PromiseBroken(EnvError):
    """A check found that a scenario breaks a promise of the contract; the message says which, where and how."""


class AgentError(MarlGemError):
    """An agent could not answer."""


class ReplayDiverged(AgentError):
    """An agent that repeats a record observes something else than it did there."""


class LLMError(MarlGemError):
    """A language model's back end could not answer."""


class TransientLLMError(LLMError):
    """May go well when asked again: a time-out, a busy server, a broken connection.

    `retry_after` is how many seconds the server asked to wait, if it did.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ServerUnreachable(TransientLLMError):
    """The request was not taken: no connection, a broken one, or a gateway without a server behind it."""


class ContextTooLong(LLMError):
    """The prompt does not fit the model; a view that shows less of the history may help."""


class ResourceError(MarlGemError):
    """A pool could not give a resource, such as a process or a database: nothing that an agent could help."""


class SandboxError(ResourceError):
    """A sandbox could not start, or ended by itself. This says nothing about the program in it."""


class SandboxUnavailable(SandboxError):
    """This machine cannot confine programs. The message says what is missing and what would help."""


class ConversionError(MarlGemError):
    """An env does not fit another library's API, or another library's env cannot be put into text."""


class RecordError(MarlGemError):
    """A record could not be written or read."""


class ConfigError(MarlGemError):
    """A configuration is inconsistent, or differs from what the run was started with."""


class JournalError(MarlGemError):
    """A run's folder cannot be read or written, or another process works on it. What it held is safe."""


class WorkerError(MarlGemError):
    """A worker process of an evaluation cannot start, or cannot play. What the run's folder holds is safe."""


class CheckpointError(MarlGemError):
    """A checkpoint or a model's folder is missing, damaged, or belongs to another scenario."""


class TrainingError(MarlGemError):
    """Advantages, a gradient or weights are not finite numbers. What was saved before is unchanged."""
