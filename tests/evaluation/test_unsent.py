"""A report says which fields of requests a server did not take."""

from __future__ import annotations

from pathlib import Path

from marl_gem import Response
from marl_gem.evaluation import Player, evaluate, tournament
from marl_gem.evaluation.markdown import markdown
from tests.evaluation.helpers import Answers, numbers_of, report_of
from tests.toys import NumberGame, always


def asked_without(*fields: str) -> Player:
    return Player("tiny@http://127.0.0.1:8000/v1", Answers(lambda _: Response("2", unsent=fields)))


def test_an_evaluation_says_which_fields_were_not_sent_and_how_often(tmp_path: Path) -> None:
    result = evaluate(NumberGame, {"a": asked_without("seed"), "b": always("1")}, n=3, out=tmp_path / "run")
    assert numbers_of(result.report, "a").unsent == {"seed": 6} and numbers_of(result.report, "b").unsent == {}
    line = "The server of `tiny@http://127.0.0.1:8000/v1` takes no seed: not sent in {} of its {} requests."
    assert line.format(6, 6) in markdown(result.report)
    resumed = evaluate(NumberGame, {"a": asked_without(), "b": always("1")}, n=5, out=tmp_path / "run", resume=True)
    assert line.format(6, 10) in markdown(resumed.report), "the server took it later, which the report shows"
    assert report_of(tmp_path / "run")["matches"][0]["agents"]["a"]["unsent"] == {"seed": 6}
    plain = evaluate(NumberGame, always("1"), n=2)
    assert "takes no" not in markdown(plain.report)


def test_so_does_a_tournament() -> None:
    report = tournament(NumberGame, {"x": asked_without("seed", "top_k"), "y": always("1")}, n=2).report
    assert "takes no seed, top_k: not sent in 8 of its 8 requests" in markdown(report)
