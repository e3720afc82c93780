"""Tasks for one agent: data sets, and suites of questions.

question.py   `QuestionEnv`: an item, an answer, a score
dataset.py    `register_dataset`: a data set as a scenario
policies.py   scripted policies for questions
rows.py       rows of files, `datasets` objects and functions
images.py     images as URLs
"""

from typing import TYPE_CHECKING

from marl_gem.lazy import lazy_names

if TYPE_CHECKING:
    from marl_gem.scenarios.tasks.dataset import Dataset, register_dataset
    from marl_gem.scenarios.tasks.question import Item, Items, ListedItems, QuestionEnv, Score
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Dataset": "dataset",
            "Item": "question",
            "Items": "question",
            "ListedItems": "question",
            "QuestionEnv": "question",
            "Score": "question",
            "register_dataset": "dataset",
        },
    )

__all__ = ["Dataset", "Item", "Items", "ListedItems", "QuestionEnv", "Score", "register_dataset"]
