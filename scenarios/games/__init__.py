"""Small games that ship with marl_gem, as `game:<Name>-v0`."""

from marl_gem.registry import register, register_analysis, register_policy

register(
    "game:Arithmetic-v0",
    "marl_gem.scenarios.games.arithmetic:Arithmetic",
    description="Small sums and large products, for one agent or a chain of them. With the tool calculator and a cost "
    "for each call, a call pays for the products only.",
    agents=1,
    turn_order="sequential",
)
register_policy(
    "game:Arithmetic-v0",
    "novice",
    "marl_gem.scenarios.games.arithmetic_novice:policy",
    description="Calls the calculator or guesses, at random: for a warm start.",
)
register_analysis(
    "game:Arithmetic-v0",
    "marl_gem.scenarios.games.arithmetic:analyse",
    description="calls/easy, calls/hard: how likely the first response to a question calls the calculator with it; "
    "by_heart/easy, by_heart/hard: how likely it is the right number.",
)

register(
    "game:Blotto-v0",
    "marl_gem.scenarios.games.blotto:Blotto",
    description="Colonel Blotto, two players at the same time. No answer beats all others; how exploitable a policy is "
    "is computed exactly.",
    agents=2,
    turn_order="parallel",
)
register_analysis(
    "game:Blotto-v0",
    "marl_gem.scenarios.games.blotto:analyse",
    description="exploitability: what best responses win from the policies, from 0 at an equilibrium to 1; "
    "value/player_0: what the first player wins.",
)

register(
    "game:KuhnPoker-v0",
    "marl_gem.scenarios.games.kuhn_poker:KuhnPoker",
    description="Poker with three cards and one bet, two players. Its exploitability is computed exactly.",
    agents=2,
    turn_order="sequential",
)
register_analysis(
    "game:KuhnPoker-v0",
    "marl_gem.scenarios.games.kuhn_analysis:analyse",
    description="exploitability: what best responses win from the policies (0 at an equilibrium, uniform play 0.458); "
    "value/player_0: what the first player wins; both in chips a hand.",
)

register(
    "game:LeducPoker-v0",
    "marl_gem.scenarios.games.leduc_poker:LeducPoker",
    description="Poker with six cards and two rounds of bets, two players. Its exploitability is computed exactly.",
    agents=2,
    turn_order="sequential",
)
register_policy(
    "game:LeducPoker-v0",
    "rule",
    "marl_gem.scenarios.games.leduc_analysis:policy",
    description="Raises with a pair and an early king, calls with a queen and a king, checks or folds the rest.",
)
register_analysis(
    "game:LeducPoker-v0",
    "marl_gem.scenarios.games.leduc_analysis:analyse",
    description="exploitability: what best responses win from the policies (0 at an equilibrium, uniform play 2.374); "
    "value/player_0: what the first player wins (-0.0856 at an equilibrium); both in chips a hand.",
)

register(
    "game:TicTacToe-v0",
    "marl_gem.scenarios.games.tictactoe:TicTacToe",
    description="Tic-tac-toe, two players. A short and fast implementation, to be used as a template.",
    agents=2,
    turn_order="sequential",
)
register_policy(
    "game:TicTacToe-v0",
    "perfect",
    "marl_gem.scenarios.games.tictactoe_analysis:policy",
    description="Never loses: one of the best moves, drawn at random.",
    marks="XO",
)
register_analysis(
    "game:TicTacToe-v0",
    "marl_gem.scenarios.games.tictactoe_analysis:analyse",
    description="lost_to_perfect/player_0: the share of games that the policy, moving first, loses to perfect play; "
    "lost_to_perfect/player_1: the same, moving second; lost_to_perfect: the mean of both.",
    marks="XO",
)

register(
    "game:Werewolf-v0",
    "marl_gem.scenarios.games.werewolf:Werewolf",
    description="Wolves kill by night, a seer looks at players, all talk and vote by day. Hidden roles, two teams.",
    agents=(4, 20),
    turn_order="mixed",
)
register_policy(
    "game:Werewolf-v0",
    "rule",
    "marl_gem.scenarios.games.werewolf_rule:policy",
    description="The seer says who is a wolf, and the village votes for it; wolves go for who says to be the seer.",
)

register(
    "game:Signalling-v0",
    "marl_gem.scenarios.games.signalling:Signalling",
    description="A Lewis signalling game, two agents: a sender and a receiver agree on what signals mean.",
    agents=2,
    turn_order="sequential",
)
register_policy(
    "game:Signalling-v0",
    "code",
    "marl_gem.scenarios.games.signalling:policy",
    description="A fixed code: the first signal means the first state, and so on. With itself it always wins.",
)
register_analysis(
    "game:Signalling-v0",
    "marl_gem.scenarios.games.signalling:analyse",
    description="success: the probability that both win (chance 1 / states, optimum 1); information: what the signal "
    "says about the state, in bits.",
)

register(
    "game:PublicGoods-v0",
    "marl_gem.scenarios.games.public_goods:PublicGoods",
    description="Public goods, 2 to 50 agents at the same time, with and without talk: gifts help the others more.",
    agents=(2, 50),
    turn_order="parallel",
)
register_policy(
    "game:PublicGoods-v0",
    "conditional",
    "marl_gem.scenarios.games.public_goods:policy",
    description="Gives all at first, and then the mean of the last gifts.",
)
register_analysis(
    "game:PublicGoods-v0",
    "marl_gem.scenarios.games.public_goods:analyse",
    description="gift: the share that players give at first; value: the mean reward of a round (1 if nobody gives, "
    "factor if all give all); exploitability: what giving nothing gains.",
)

register(
    "game:PrisonersDilemma-v0",
    "marl_gem.scenarios.games.prisoners_dilemma:PrisonersDilemma",
    description="The iterated prisoner's dilemma, two agents at the same time, with and without talk.",
    agents=2,
    turn_order="parallel",
)
register_policy(
    "game:PrisonersDilemma-v0",
    "tit_for_tat",
    "marl_gem.scenarios.games.prisoners_dilemma:policy",
    description="Cooperates at first, and then plays what the other played last.",
)
register_analysis(
    "game:PrisonersDilemma-v0",
    "marl_gem.scenarios.games.prisoners_dilemma:analyse",
    description="value/player_0 and value/player_1: the exact mean reward of a round, as memory-one strategies "
    "(both cooperate: -1, both defect: -2); cooperation: in the first round.",
)

register(
    "game:Negotiation-v0",
    "marl_gem.scenarios.games.negotiation:Negotiation",
    description="Two agents divide items whose worth to each only it knows, by proposals and words.",
    agents=2,
    turn_order="sequential",
)
register_policy(
    "game:Negotiation-v0",
    "rule",
    "marl_gem.scenarios.games.negotiation:policy",
    description="Asks for all, then for a little less each turn, and takes what is worth as much as it would ask for.",
)
