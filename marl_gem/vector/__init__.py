"""Many envs of one kind in lock step or at their own pace, for those who write the loop themselves.

    with VectorEnv(make, 64, seed=7) as envs:
        results = envs.reset()
        while training:
            results = envs.step([act(result.observations) for result in results])

`step` waits for the slowest env. With `send` and `recv` no env waits for another:

        envs.send({result.index: act(result.observations) for result in envs.reset()})
        while training:
            envs.send({result.index: act(result.observations) for result in envs.recv()})

A mistake of the caller is raised before anything has changed. A failure of an env is reported in its result, and
the other envs go on.
"""

from marl_gem.vector.result import Result
from marl_gem.vector.slot import Actions, Make
from marl_gem.vector.vector_env import Autoreset, VectorEnv

__all__ = ["Actions", "Autoreset", "Make", "Result", "VectorEnv"]
