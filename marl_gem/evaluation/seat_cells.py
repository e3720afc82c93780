"""The numbers of each agent of an evaluation as cells of a table; in tables of many agents, of those that are alike."""

from __future__ import annotations

from collections.abc import Sequence

from marl_gem.evaluation.markup import NOTHING, by_row, estimate_text, money_text, number_text, quoted, transposed
from marl_gem.evaluation.report import AgentReport, IllegalActions, MatchReport, Report, TokenCounts, UsageReport
from marl_gem.evaluation.seat_groups import MANY, seat_groups, spread_text


def success_word(report: Report) -> str:
    """What tables call success: that of a task, or a contest that is won."""
    return "won" if report.measure == "win rate" else "success"


def seat_table(report: Report, match: MatchReport) -> list[str]:
    """The table of a match's agents: a column for each or, of many, for those that are alike."""
    groups = _groups(match)
    cells = {
        name: _seat(report, match, agents[0]) if len(agents) == 1 else _seats(report, match, agents)
        for name, agents in groups.items()
    }
    note = "Seats that are alike are counted together: their mean, and in brackets the least and the greatest of them."
    return [
        transposed(cells) if len(cells) <= MANY else by_row(cells),
        *([note] if len(groups) < len(match.agents) else []),
    ]


def every_seat(report: Report) -> list[str]:
    """A row for each agent of an evaluation, if its `seat_table` counts some together."""
    (match,) = report.matches
    if len(_groups(match)) == len(match.agents):
        return []
    return ["## Every seat", by_row({agent: _seat(report, match, agent) for agent in match.agents})]


def _groups(match: MatchReport) -> dict[str, list[str]]:
    return seat_groups({agent: match.players[agent].who if agent in match.players else "" for agent in match.agents})


def _seat(report: Report, match: MatchReport, agent: str) -> dict[str, str]:
    """The numbers of one agent, by name."""
    numbers = match.agents[agent]
    return {
        "player": quoted(match.players[agent].who) if agent in match.players else NOTHING,
        success_word(report): estimate_text(numbers.success, share=True),
        **({"won / drawn / lost": _results([numbers])} if report.measure == "win rate" else {}),
        "mean return": estimate_text(numbers.return_, share=False),
        **usage_cells(numbers, match.episodes),
    }


def _seats(report: Report, match: MatchReport, agents: Sequence[str]) -> dict[str, str]:
    """The same of several agents together: means with the least and the greatest, and sums."""
    every = [match.agents[agent] for agent in agents]
    successes = [numbers.success.mean for numbers in every if numbers.success]
    returns = [numbers.return_.mean for numbers in every if numbers.return_]
    return {
        "player": quoted(match.players[agents[0]].who) if agents[0] in match.players else NOTHING,
        success_word(report): spread_text([100 * mean for mean in successes], 1, "%") if successes else NOTHING,
        **({"won / drawn / lost": _results(every)} if report.measure == "win rate" else {}),
        "mean return": spread_text(returns, 3) if returns else NOTHING,
        **usage_cells(_together(every), match.episodes * len(agents)),
    }


def _together(every: Sequence[AgentReport]) -> UsageReport:
    """What several agents used: sums, and their mean number of turns. Their answers' times cannot be put together."""
    turns = [usage.turns for usage in every if usage.turns is not None]
    costs = [usage.cost for usage in every]
    return UsageReport(
        turns=sum(turns) / len(turns) if turns else None,
        illegal=IllegalActions(
            sum(usage.illegal.actions for usage in every), sum(usage.illegal.episodes for usage in every)
        ),
        tokens=TokenCounts(
            sum(usage.tokens.prompt for usage in every), sum(usage.tokens.completion for usage in every)
        ),
        cost=None if None in costs else sum(cost or 0.0 for cost in costs),
        cached=sum(usage.cached for usage in every),
        cut_prompts=sum(usage.cut_prompts for usage in every),
        retries=sum(usage.retries for usage in every),
        seconds=None,
    )


def _results(agents: Sequence[AgentReport]) -> str:
    results = [agent.results for agent in agents if agent.results]
    if not results:
        return NOTHING
    return " / ".join(str(sum(counts)) for counts in zip(*((r.won, r.drawn, r.lost) for r in results), strict=True))


def usage_cells(usage: UsageReport, episodes: int) -> dict[str, str]:
    """What an agent or a player did and used in so many episodes, by name."""
    tokens, seconds = usage.tokens, usage.seconds
    return {
        "episodes with an illegal action": f"{100 * usage.illegal.episodes / episodes:.1f}%" if episodes else NOTHING,
        "turns per episode": number_text(usage.turns),
        "tokens read / written": (
            f"{tokens.prompt:,} / {tokens.completion:,}" if tokens.prompt or tokens.completion else NOTHING
        ),
        "cost": money_text(usage.cost),
        "seconds per answer, p50 / p95": f"{seconds.p50:.2f} / {seconds.p95:.2f}" if seconds else NOTHING,
        "answers from the cache": f"{usage.cached:,}" if usage.cached else NOTHING,
        "prompts that were cut to fit": f"{usage.cut_prompts:,}" if usage.cut_prompts else NOTHING,
        "repeated requests": f"{usage.retries:,}" if usage.retries else NOTHING,
    }
