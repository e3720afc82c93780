"""Problems of our own, eight of each grade."""

from marl_gem.scenarios.tasks.code.problems import easy, hard, medium

PROBLEMS = (*easy.PROBLEMS, *medium.PROBLEMS, *hard.PROBLEMS)
